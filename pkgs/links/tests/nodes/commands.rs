//! Commands on PostgreSQL, and what they refuse.

use std::fmt::Write;
use std::process::{Command, Stdio};

use bench::postgres::{Durability, Postgres};

use crate::server::{BINARY, Place, alone};
use crate::start;

#[test]
fn commands_work_on_postgresql_and_what_is_for_files_alone_is_refused() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let run = |arguments: &[&str]| {
        let output = place.command(arguments).expect("the binary runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &error)
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let rows = "target,code,tags,password,max_clicks,clicks\n\
                https://a.example/,a,x|y,,,5\n\
                https://b.example/,b,x,secret,,\n\
                https://c.example/,,,,9,\n\
                https://a.example/again,a,,,,\n\
                nonsense,d,,,,\n";
    std::fs::write(file("links.csv"), rows).expect("writable");
    for (arguments, code, said) in [
        (vec!["add", "https://example.com/", "--code", "one", "--tag", "x"], 0, "/one"),
        (vec!["add", "https://example.com/", "--code", "one"], 1, "the code \"one\" is taken"),
        (vec!["get", "one"], 0, "https://example.com/"),
        (vec!["get", "none"], 2, "no link has the code"),
        (vec!["edit", "one", "--title", "A title"], 0, "one"),
        (vec!["import", &file("links.csv")], 1, "2"),
        (vec!["import", &file("links.csv"), "--on-conflict", "replace"], 1, "1"),
        (vec!["get", "a"], 0, "https://a.example/again"),
        (vec!["list", "--search", "A TITLE"], 0, "one"),
        (vec!["list", "--tag", "x"], 0, "https://b.example/"),
        (vec!["list", "--sort=-clicks"], 0, "again"),
        (vec!["list", "--sort", "code"], 0, "one"),
        (vec!["stats"], 0, ""),
        (vec!["domain", "add", "go.example"], 0, "go.example"),
        (vec!["add", "https://d.example/", "--domain", "go.example", "--code", "one"], 0, "one"),
        (vec!["domain", "rm", "go.example"], 1, "has links"),
        (vec!["key", "add", "ci", "--scope", "read"], 0, "lr_"),
        (vec!["key", "add", "ends", "--scope", "read", "--expires", "2130-01-31"], 0, "lr_"),
        (vec!["key", "list"], 0, "2130-01-31T00:00:00Z"),
        (vec!["export", &file("out.csv"), "--hashes"], 0, ""),
        (vec!["rm", "one"], 0, ""),
        (vec!["domain", "rm", "go.example", "--force"], 0, ""),
        (vec!["backup", &file("copy.db")], 2, "pg_dump"),
        (vec!["check"], 2, "pg_dump"),
    ] {
        let (status, output) = run(&arguments);
        assert_eq!(status, Some(code), "{arguments:?}: {output}");
        assert!(output.contains(said), "{arguments:?}: {output}");
        if code == 2 {
            assert_eq!(output.lines().count(), 1, "{arguments:?}: {output}");
        }
    }
    assert!(!directory.path().join("copy.db").exists(), "what is refused leaves nothing behind");
    // The export makes the same links elsewhere: in a file, and from there in another database.
    let exported = std::fs::read_to_string(file("out.csv")).expect("it was written");
    assert!(exported.contains("go.example") && exported.contains("$argon2id$"), "{exported}");
}

/// Makes writes of such a link pause.
fn pause(postgres: &Postgres, place: &Place, seconds: f64, so: &str) {
    assert!(place.command(&["list"]).expect("it runs").status.success(), "the schema is made");
    let sql = format!(
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END$$; \
         CREATE TRIGGER pause BEFORE INSERT OR UPDATE ON links FOR EACH ROW WHEN ({so}) EXECUTE FUNCTION pause()"
    );
    postgres.execute("postgres", &sql).expect("it is new");
}

#[test]
fn the_last_row_of_a_code_wins_whatever_batch_it_is_in() {
    let _alone = alone();
    let (postgres, place) = start(Durability::None);
    pause(&postgres, &place, 1.0, "NEW.target LIKE '%/old'");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("links.csv").to_string_lossy().into_owned();
    // A batch has 20,000 rows. The first one ends with the old target, and the second one begins with the new one.
    let mut rows = "code,target\n".to_owned();
    let add = |rows: &mut String, name: &str| {
        for n in 0..19_999 {
            writeln!(rows, "{name}{n},https://t.example/").expect("a string takes all");
        }
    };
    add(&mut rows, "a");
    rows += "twice,https://t.example/old\ntwice,https://t.example/new\n";
    add(&mut rows, "z");
    std::fs::write(&file, rows).expect("writable");
    let imported = place.command(&["import", &file, "--on-conflict", "replace"]).expect("the binary runs");
    assert!(imported.status.success(), "{imported:?}");
    let shown = place.command(&["get", "twice"]).expect("the binary runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("https://t.example/new"), "{shown}");
}

#[test]
fn imports_of_the_same_codes_wait_for_each_other() {
    let _alone = alone();
    let (postgres, place) = start(Durability::None);
    // Each one pauses in the middle, so that both are under way.
    pause(&postgres, &place, 0.5, "NEW.code = 'c2'");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, codes: [&str; 3]| {
        let path = directory.path().join(name);
        let rows = codes.map(|code| format!("{code},https://t.example/{name}\n"));
        std::fs::write(&path, format!("code,target\n{}", rows.concat())).expect("writable");
        path.to_string_lossy().into_owned()
    };
    let files = [file("up.csv", ["c1", "c2", "c3"]), file("down.csv", ["c3", "c2", "c1"])];
    // The first ones create the links, and the others replace them.
    for _ in 0..2 {
        let running = files.each_ref().map(|file| {
            let mut command = Command::new(BINARY);
            command.args(["import", file, "--on-conflict", "replace", "--database"]).arg(&place.database);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
        });
        for import in running {
            let output = import.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{output:?}");
        }
    }
}

#[test]
fn what_is_imported_has_the_age_of_its_place_in_the_file() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let codes = ["zebra", "ant", "mole"];
    let rows = codes.map(|code| format!("{code},https://t.example/\n"));
    std::fs::write(file("in.csv"), format!("code,target\n{}", rows.concat())).expect("writable");
    for command in [["import", &file("in.csv")], ["export", &file("out.csv")]] {
        let output = place.command(&command).expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
    }
    let exported = std::fs::read_to_string(file("out.csv")).expect("it was written");
    let places = codes.map(|code| exported.find(code));
    assert!(places.is_sorted() && places[0].is_some(), "{exported}");
}
