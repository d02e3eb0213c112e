//! Migrations: to a newer schema, and beside an older program.

use postgres::{Migration, Migrations};

use super::*;

const STEPS: [Migration; 3] = [
    Migration { version: 1, min_reader: 1, name: "one", sql: "CREATE TABLE one (a int)" },
    Migration { version: 2, min_reader: 1, name: "two", sql: "ALTER TABLE one ADD b int" },
    Migration { version: 3, min_reader: 3, name: "three", sql: "ALTER TABLE one DROP a" },
];

fn knowing(steps: &'static [Migration]) -> Migrations {
    Migrations { program: "test", steps }
}

#[tokio::test]
async fn the_generation_before_starts_after_a_newer_one_has_migrated_unless_a_step_says_no() {
    static ALL: [Migration; 3] = STEPS;
    let server = Server::start(&[]);
    let session = Connector::new(&server.local(), "test").connect().await.expect("it connects");
    let run = async |known: usize| knowing(&ALL[..known]).run(&session).await;
    assert_eq!(run(1).await.expect("it is new"), 1);
    assert_eq!(run(2).await.expect("one step"), 2);
    assert_eq!(run(2).await.expect("nothing to do"), 2);
    assert_eq!(run(1).await.expect("the generation before can use it"), 2);
    assert_eq!(run(3).await.expect("one more"), 3);
    let refused = run(2).await.expect_err("it needs a column that is gone");
    assert!(matches!(refused, Error::Newer { found: 3, min_reader: 3, known: 2 }), "{refused}");
    // Another program's tables don't matter.
    let other = Migrations { program: "other", steps: &[] };
    assert_eq!(other.run(&session).await.expect("nothing to do"), 0);
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_and_what_sqlx_noted_is_adopted() {
    static BROKEN: [Migration; 2] = [
        STEPS[0],
        Migration { version: 2, min_reader: 1, name: "broken", sql: "CREATE TABLE two (a int); SELECT 1/0" },
    ];
    static ALL: [Migration; 3] = STEPS;
    let server = Server::start(&[]);
    let connector = Connector::new(&server.local(), "test");
    let run = async |steps| knowing(steps).run(&*connector.connect().await?).await;
    assert!(run(&BROKEN).await.is_err());
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(server.postgres.execute("postgres", tables).expect("it answers"), "0");
    let sqlx = "CREATE TABLE one (a int); CREATE TABLE _sqlx_migrations (version bigint, success bool, checksum bytea); \
                INSERT INTO _sqlx_migrations VALUES (1, true, sha384('CREATE TABLE one (a int)'))";
    server.postgres.execute("postgres", sqlx).expect("they are new");
    assert_eq!(run(&ALL).await.expect("two steps"), 3);
    let others = "DROP TABLE linerate_schema; UPDATE _sqlx_migrations SET checksum = 'x'";
    server.postgres.execute("postgres", others).expect("they are there");
    assert!(matches!(run(&ALL).await, Err(Error::Foreign)));
}
