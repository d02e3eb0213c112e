//! Commands on PostgreSQL, and what they refuse.

use bench::postgres::Durability;

use crate::server::alone;
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
