//! The pool, pipelines and COPY.

use std::num::NonZero;
use std::time::Duration;

use futures_util::StreamExt;
use postgres::types::{ToSql, Type};
use postgres::{KeyQuery, Pipelines, Pool, copy};

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn rows_are_copied_in_read_by_key_and_copied_out() {
    let server = Server::start(&[]);
    let connector = Connector::new(&server.local(), "test");
    let pool = Pool::new(connector.clone(), 2, PATIENCE);
    let session = pool.get().await.expect("it connects");
    session
        .batch("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL CHECK (n >= 0))")
        .await
        .expect("it is new");
    let row = |id: i32| -> [Box<dyn ToSql + Sync + Send>; 2] { [Box::new(id), Box::new(id * 2)] };
    let types = [Type::INT4, Type::INT4];
    let into = "COPY t (id, n) FROM STDIN (FORMAT binary)";
    assert_eq!(copy::write(&session, into, &types, (0..1_000).map(row)).await.expect("they are new"), 1_000);
    assert!(copy::write(&session, into, &types, [row(2_000), row(0)]).await.is_err(), "all or none");
    let rows = copy::read(&session, "COPY (SELECT id, n FROM t) TO STDOUT (FORMAT binary)", &types).await;
    let rows: Vec<i32> =
        rows.expect("it answers").map(|row| row.expect("a row").get::<i32>(1)).collect().await;
    assert_eq!((rows.len(), rows.iter().sum::<i32>()), (1_000, 999_000));
    drop(session);

    let query = KeyQuery {
        one: "SELECT id, n FROM t WHERE id = $1",
        several: "SELECT id, n FROM t WHERE id = ANY($1)",
        key: Type::INT4,
        keys: Type::INT4_ARRAY,
        read: |row| Ok((row.try_get::<_, i32>(0)?, row.try_get::<_, i32>(1)?)),
    };
    let pipelines = Pipelines::new(&connector, "read", NonZero::<usize>::MIN, PATIENCE, query);
    let reads = (0..1_010).map(|id| pipelines.get(id));
    let found = futures_util::future::join_all(reads).await;
    for (id, found) in (0..).zip(found) {
        assert_eq!(found.expect("it answers"), (id < 1_000).then_some(id * 2), "{id}");
    }
}

#[tokio::test]
async fn a_session_that_was_given_up_halfway_is_not_lent_again_and_waiting_has_an_end() {
    let server = Server::start(&[]);
    let pool = Pool::new(Connector::new(&server.local(), "test"), 1, Duration::from_millis(300));
    let pid = async || {
        let rows = pool.get().await?.query("SELECT pg_backend_pid()", &[]).await?;
        Ok::<i32, Error>(rows[0].get(0))
    };
    let first = pid().await.expect("it connects");
    assert_eq!(pid().await.expect("it is lent again"), first);
    let held = pool.get().await.expect("it is free");
    assert!(matches!(pid().await, Err(Error::Busy)));
    let slow = tokio::time::timeout(Duration::from_millis(50), held.query("SELECT pg_sleep(30)", &[])).await;
    assert!(slow.is_err());
    drop(held);
    let second = pid().await.expect("another is connected");
    assert_ne!(second, first);
    let held = pool.get().await.expect("it is free");
    drop(held.begin().await.expect("a transaction"));
    drop(held);
    assert_ne!(pid().await.expect("another is connected"), second, "a transaction was left open");
}
