//! The command line, as a process: its output, its exit codes, and the files it leaves.

mod place;

use std::net::TcpListener;
use std::process::Stdio;

use place::{Place, command, on_both, squeezed};
use serde_json::{Value, json};

#[test]
fn add_prints_the_short_url_and_get_the_link() {
    on_both(|place| {
        assert_eq!(place.ok(&["add", "https://example.com/a", "--code", "a"]), "https://go.example/a\n");
        let shown = place.ok(&["get", "a"]);
        let lines: Vec<_> = shown.lines().map(squeezed).collect();
        assert_eq!(lines[..2], ["short URL https://go.example/a", "target https://example.com/a"]);
    });
}

#[test]
fn add_takes_every_field() {
    on_both(|place| {
        #[rustfmt::skip]
        let mut link = place.json(&[
            "add", "https://example.com/a", "--code", "a-b", "--title", "A title", "--tag", "y", "--tag", "x",
            "--status", "disabled", "--redirect", "302", "--forward-query", "--password", "secret",
            "--not-before", "2030-01-01T00:00:00Z", "--expires", "2031-01-01T00:00:00Z", "--max-clicks", "9",
        ]);
        for instant in ["created_at", "updated_at"] {
            let removed = link.as_object_mut().expect("an object").remove(instant);
            assert!(removed.is_some_and(|at| at.as_str().is_some_and(|at| at.ends_with('Z'))), "{instant}");
        }
        let expected = json!({
            "short_url": "https://go.example/a-b", "code": "a-b", "target": "https://example.com/a",
            "title": "A title", "tags": ["x", "y"], "status": "disabled", "redirect": 302,
            "forward_query": true, "protected": true, "not_before": "2030-01-01T00:00:00Z",
            "expires_at": "2031-01-01T00:00:00Z", "max_clicks": 9, "clicks": 0,
        });
        assert_eq!(link, expected);
    });
}

#[test]
fn a_password_comes_from_standard_input_without_its_line_end() {
    on_both(|place| {
        let args = ["add", "https://example.com", "--password-stdin", "--json"];
        assert_eq!(place.run_with(&args, "secret\nmore\n").json()["protected"], true);
        let exported = place.ok(&["export", "--json", "--hashes"]);
        let records: Value = serde_json::from_str(&exported).expect("JSON");
        let hash = records[0]["password_hash"].as_str().expect("a hash");
        assert!(service::password::verify("secret", hash), "{hash}");
    });
}

#[test]
fn edit_sets_and_clears() {
    on_both(|place| {
        #[rustfmt::skip]
        place.ok(&[
            "add", "https://example.com", "--code", "a", "--title", "t", "--tag", "x", "--password", "p",
            "--expires", "7d", "--not-before", "2020-01-01T00:00:00Z", "--max-clicks", "5",
        ]);
        #[rustfmt::skip]
        let set = place.json(&[
            "edit", "a", "--target", "https://example.org/", "--title", "u", "--tag", "z",
            "--redirect", "308", "--forward-query=true", "--status", "disabled",
        ]);
        for (field, value) in [
            ("target", json!("https://example.org/")),
            ("title", json!("u")),
            ("tags", json!(["z"])),
            ("redirect", json!(308)),
            ("forward_query", json!(true)),
            ("status", json!("disabled")),
            ("max_clicks", json!(5)),
            ("protected", json!(true)),
        ] {
            assert_eq!(set[field], value, "{field}");
        }
        #[rustfmt::skip]
        let cleared = place.json(&[
            "edit", "a", "--clear-title", "--clear-tags", "--clear-password", "--clear-not-before",
            "--clear-expires", "--clear-max-clicks", "--forward-query=false",
        ]);
        for field in ["title", "not_before", "expires_at", "max_clicks"] {
            assert_eq!(cleared[field], Value::Null, "{field}");
        }
        assert_eq!(
            (&cleared["protected"], &cleared["forward_query"], &cleared["tags"]),
            (&json!(false), &json!(false), &json!([]))
        );
        place.run(&["edit", "a"]).failed(2, "nothing to change: give --target, ");
        place.run(&["edit", "a", "--title", "t", "--clear-title"]).failed(2, "cannot be used with");
    });
}

#[test]
fn list_filters_sorts_and_pages() {
    on_both(|place| {
        for (code, tag) in [("a", "x"), ("b", "y"), ("c", "x")] {
            place.ok(&["add", &format!("https://example.com/{code}"), "--code", code, "--tag", tag]);
        }
        place.ok(&["edit", "b", "--status", "disabled", "--title", "Needle"]);
        let codes = |args: &[&str]| -> String {
            let page = place.json(&[&["list"], args].concat());
            let links = page["links"].as_array().expect("links");
            links.iter().map(|link| link["code"].as_str().expect("a code")).collect()
        };
        for (args, expected) in [
            (&[][..], "cba"),
            (&["--sort", "created"], "abc"),
            (&["--sort", "-created"], "cba"),
            (&["--sort=-code"], "cba"),
            (&["--desc"], "cba"),
            (&["--sort", "code"], "abc"),
            (&["--sort", "code", "--desc"], "cba"),
            (&["--sort", "clicks", "--limit", "2"], "ab"),
            (&["--tag", "x"], "ca"),
            (&["--status", "disabled"], "b"),
            (&["--search", "needle"], "b"),
            (&["--search", "nowhere"], ""),
            (&["--all", "--sort", "code"], "abc"),
            (&["--all", "--search", "nowhere"], ""),
        ] {
            assert_eq!(codes(args), expected, "{args:?}");
        }
        let first = place.json(&["list", "--sort", "code", "--limit", "2"]);
        let cursor = first["next"].as_str().expect("a cursor");
        assert_eq!(codes(&["--sort", "code", "--limit", "2", "--cursor", cursor]), "c");

        let table = place.run(&["list", "--sort", "code", "--limit", "2"]);
        let lines: Vec<_> = table.stdout.lines().map(squeezed).collect();
        assert_eq!(lines[0], "CODE TARGET TITLE TAGS STATUS CLICKS CREATED");
        assert!(lines[2].starts_with("b https://example.com/b Needle y disabled 0 20"), "{lines:?}");
        assert!(table.stderr.contains("--cursor"), "{table:?}");
    });
}

#[test]
fn rm_deletes_each_on_its_own_merits() {
    on_both(|place| {
        for code in ["a", "b", "c"] {
            place.ok(&["add", "https://example.com", "--code", code]);
        }
        assert_eq!(
            place.ok(&["edit", "a", "b", "--add-tag", "x", "--status", "disabled"]),
            "edited a\nedited b\n"
        );
        let ran = place.run(&["edit", "a", "none", "c", "--add-tag", "y", "--remove-tag", "x", "--json"]);
        ran.failed(1, "1 of 3");
        assert_eq!(ran.json()["edited"], json!(["a", "c"]));
        assert_eq!(ran.json()["failed"][0]["code"], "none");
        let edited = place.json(&["get", "a"]);
        assert_eq!((&edited["tags"], &edited["status"]), (&json!(["y"]), &json!("disabled")));
        place.run(&["edit", "a", "b", "--add-tag", "no space"]).failed(2, "tag");
        assert_eq!(place.ok(&["rm", "a"]), "deleted a\n");
        let ran = place.run(&["rm", "a", "b", "--json"]);
        ran.failed(1, "1 of 2");
        assert_eq!(ran.json()["deleted"], json!(["b"]));
        assert_eq!(ran.json()["failed"][0]["code"], "a");
        place.run(&["rm", "a"]).failed(2, "no link has the code");
        place.run(&["get", "b"]).failed(2, "no link has the code");
    });
}

#[test]
fn bad_input_is_2_and_failure_is_1() {
    on_both(|place| {
        place.ok(&["add", "https://example.com", "--code", "taken"]);
        for (args, code, why) in [
            (&["add", "ftp://example.com"][..], 2, "scheme"),
            (&["add", "example.com"], 2, "https://"),
            (&["add", "https://go.example/x"], 2, "leads back"),
            (&["add", "https://example.com", "--code", "a/b"], 2, "'/'"),
            (&["add", "https://example.com", "--code", "robots.txt"], 2, "reserved"),
            (&["add", "https://example.com", "--redirect", "303"], 2, "303"),
            (&["add", "https://example.com", "--expires", "soon"], 2, "soon"),
            (&["add", "https://example.com", "--max-clicks", "-1"], 2, "-1"),
            (&["add"], 2, "URL"),
            (&["list", "--limit", "0"], 2, "0"),
            (&["list", "--sort", "beauty"], 2, "beauty"),
            (&["list", "--cursor", "nonsense"], 2, "cursor"),
            (&["stats", "--from", "yesterday"], 2, "yesterday"),
            (&["frobnicate"], 2, "frobnicate"),
            (&["add", "https://example.com", "--code", "taken"], 1, "taken"),
            (&["get", "nowhere"], 2, "nowhere"),
            (&["get", "no where?"], 2, "no"),
            (&["edit", "nowhere", "--title", "t"], 2, "nowhere"),
            (&["stats", "nowhere"], 2, "nowhere"),
            (&["import", "nowhere.csv"], 2, "nowhere.csv"),
            (&["import", "nowhere"], 2, "--format"),
            (&["export", "nowhere/links.csv"], 2, "nowhere/links.csv"),
            (&["export", "links.xml"], 2, "--format"),
        ] {
            place.run(args).failed(code, why);
        }
    });
}

#[test]
fn a_database_that_somebody_else_holds_is_named() {
    let place = Place::with_database();
    place.ok(&["add", "https://example.com"]);
    let holder = rusqlite::Connection::open(place.path("links.db")).expect("it opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    place.run(&["add", "https://example.com"]).failed(1, "links.db: the database is busy");
}

#[test]
fn serve_greets_in_json_where_that_is_asked_for() {
    use std::io::BufRead;
    let place = Place::with_database();
    let args = ["serve", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut child = place.command(&args).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(said["links"][0].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")), "{said}");
    assert!(said["admin"].is_string() && said["token"].is_string(), "{said}");
}

#[test]
fn what_is_exported_comes_back_the_same() {
    on_both(|from| {
        #[rustfmt::skip]
        from.ok(&[
            "add", "https://example.com/a?b=c", "--code", "a", "--title", "Ünï, \"quoted\"",
            "--tag", "x", "--tag", "y", "--expires", "2031-01-01T00:00:00Z",
        ]);
        #[rustfmt::skip]
        from.ok(&[
            "add", "https://example.com/b", "--code", "b", "--title", "=1+1", "--password", "secret",
            "--redirect", "301", "--forward-query", "--max-clicks", "7", "--status", "disabled",
        ]);
        for (file, format) in [("links.csv", "csv"), ("links.json", "json")] {
            let path = from.path(file).display().to_string();
            assert_eq!(from.ok(&["export", &path, "--hashes"]), "");
            let piped = from.ok(&["export", "--format", format, "--hashes"]);
            assert_eq!(std::fs::read_to_string(&path).expect("written"), piped, "{format}");

            on_both(|to| {
                assert_eq!(to.ok(&["import", &path]), "2 created, 0 replaced, 0 skipped, 0 failed\n");
                assert_eq!(to.ok(&["export", "--format", format, "--hashes"]), piped, "{format}");

                let again = to.run(&["import", &path, "--json"]);
                again.failed(1, "2 of 2");
                assert_eq!(again.json()["failed"], 2);
                let skipped = to.json(&["import", &path, "--on-conflict", "skip"]);
                assert_eq!((&skipped["skipped"], &skipped["failed"]), (&json!(2), &json!(0)));
                let ran =
                    to.run_with(&["import", "-", "--format", format, "--on-conflict", "replace"], &piped);
                assert_eq!(ran.stdout, "0 created, 2 replaced, 0 skipped, 0 failed\n");
            });
        }
    });
}

#[test]
fn an_import_goes_on_after_a_bad_row_and_tells_of_it() {
    on_both(|place| {
        let rows = "target,code\nhttps://example.com,a\nftp://x,b\nhttps://example.com,c\n";
        let ran = place.run(&["import", &place.write("links.csv", rows)]);
        ran.failed(1, "1 of 3");
        assert_eq!(ran.stdout.lines().next(), Some("2 created, 0 replaced, 0 skipped, 1 failed"));
        assert!(ran.stdout.contains("row 2: "), "{ran:?}");
        place.ok(&["get", "c"]);
        let odd = place.write("odd.csv", "target,colour\nhttps://example.com,red\n");
        place.run(&["import", &odd]).failed(2, "colour");
    });
}

#[test]
fn exports_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::with_database();
    place.ok(&["add", "https://example.com"]);
    place.ok(&["export", "out.csv"]);
    let mode = place.path("out.csv").metadata().expect("written").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn stats_are_empty_before_the_first_click() {
    on_both(|place| {
        place.ok(&["add", "https://example.com", "--code", "a"]);
        let nothing = json!({"clicks": 0, "days": [], "referrers": [], "agents": [], "older": null});
        assert_eq!(place.json(&["stats"]), nothing);
        assert_eq!(place.json(&["stats", "a", "--from", "2020-01-01", "--to", "2030-01-01"]), nothing);
        assert_eq!(place.ok(&["stats", "a"]), "0 clicks\n");
    });
}

#[test]
fn reading_creates_no_database() {
    let place = Place::with_database();
    for args in [
        &["get", "a"][..],
        &["list"],
        &["export"],
        &["stats"],
        &["check"],
        &["rm", "a"],
        &["backup", "b.db"],
        &["edit", "a", "--title", "t"],
        &["key", "list"],
        &["key", "rm", "1"],
    ] {
        place.run(args).failed(2, "no database");
    }
    assert_eq!(std::fs::read_dir(place.path("")).expect("readable").count(), 0);
}

#[test]
fn the_policy_is_the_servers() {
    let place = Place::with_database();
    let add = ["add", "https://example.com"];
    place.run(&[&add[..], &["--code", "mine", "--reserve", "mine"]].concat()).failed(2, "reserved");
    place.run(&[&add[..], &["--max-target-bytes", "16"]].concat()).failed(2, "16 bytes");
    place.run(&[&add[..], &["--own-host", "example.com"]].concat()).failed(2, "leads back");
    let link = place.json(&["add", "gopher://example.com", "--scheme", "gopher", "--code-length", "20"]);
    assert_eq!(link["code"].as_str().map(str::len), Some(20));
}

#[test]
fn the_database_has_a_default_place_and_leaves_no_log_behind() {
    let home = tempfile::tempdir().expect("a temporary directory");
    for (variable, value, file) in [
        ("UNRELATED", "", ".local/share/linerate/links.db"),
        ("XDG_DATA_HOME", "data", "data/linerate/links.db"),
        ("STATE_DIRECTORY", "state", "state/links.db"),
    ] {
        let status = command(home.path())
            .env(variable, home.path().join(value))
            .args(["add", "https://example.com"])
            .stdout(Stdio::null())
            .status()
            .expect("the binary starts");
        assert!(status.success(), "{variable}");
        let file = home.path().join(file);
        assert!(file.is_file(), "{variable}");
        let beside = std::fs::read_dir(file.parent().expect("a directory")).expect("readable").count();
        assert_eq!(beside, 1, "{variable}: SQLite's log was not tidied away");
    }
}

#[test]
fn keys_are_added_listed_and_revoked_by_either_words() {
    for (noun, add, rm) in [("key", "add", "rm"), ("token", "create", "revoke")] {
        let place = Place::with_database();
        let secret = place.ok(&[noun, add, "ci", "--scope", "read"]);
        let secret = secret.trim_end();
        assert!(secret.len() > 32 && !secret.contains(char::is_whitespace), "{secret:?}");
        let made = place.json(&[noun, add, "ops", "--scope", "write"]);
        assert!(made["key"].is_string() && made["scope"] == "write", "{made}");
        let listed = place.json(&[noun, "list"]);
        let keys = listed["keys"].as_array().expect("keys");
        assert_eq!(keys.iter().map(|key| &key["name"]).collect::<Vec<_>>(), ["ci", "ops"]);
        assert!(!listed.to_string().contains(secret), "the list has secrets");
        let id = made["id"].to_string();
        assert_eq!(place.ok(&[noun, rm, &id]), format!("revoked {id}\n"));
        assert!(!place.ok(&[noun, "list"]).contains("ops"));
        place.run(&[noun, rm, &id]).failed(2, &id);
    }
    let help = Place::with_database().ok(&["--help"]);
    assert!(!help.contains("\n  token "), "the old words are understood, not taught: {help}");
}

#[test]
fn commands_read_the_servers_file_of_settings() {
    let place = Place::with_database();
    let settings = place.write(
        "links.toml",
        "database = 'other.db'\npublic-url = 'https://s.example'\nworkers = 1\ncode-length = 9\n",
    );
    let run = |args: &[&str]| {
        let mut command = command(&place.path(""));
        let output = command.args(args).args(["--config", &settings]).output().expect("it runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let url = run(&["add", "https://example.com"]);
    let code = url.trim_end().strip_prefix("https://s.example/").unwrap_or_else(|| panic!("{url}"));
    assert_eq!(code.len(), 9);
    assert!(place.path("other.db").exists());
    assert!(run(&["get", code]).contains("https://example.com"));
    assert_eq!(
        run(&["add", "https://example.com", "--code", "a", "--public-url", "http://b"]),
        "http://b/a\n"
    );
    run(&["key", "add", "ci", "--scope", "read"]);
    assert!(run(&["key", "list"]).contains("ci"));
    place.write("links.toml", "listen = '127.0.0.1:9000'\n");
    assert_eq!(run(&["add", "https://example.com", "--code", "c"]), "http://127.0.0.1:9000/c\n");
}

#[test]
fn what_cannot_be_a_database_is_refused_and_left_alone() {
    let place = Place::with_database();
    place.write("notes.txt", &"not a database, though long enough for one\n".repeat(40));
    std::fs::create_dir(place.path("directory")).expect("writable");
    for (database, why) in [
        (
            "mysql://user@host/links",
            "links are in a file on this machine or in PostgreSQL, and mysql:// names neither",
        ),
        ("notes.txt", "notes.txt: this is no database"),
        ("directory", "directory: this is a directory"),
    ] {
        for args in [&["list"][..], &["add", "https://example.com"], &["serve", "--listen", "127.0.0.1:0"]] {
            place.run(&[args, &["--database", database]].concat()).failed(2, why);
        }
    }
    let names =
        std::fs::read_dir(place.path("")).expect("readable").map(|entry| entry.expect("one").file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["directory", "notes.txt"]);
}

#[test]
fn an_export_without_hashes_opens_nothing() {
    on_both(|from| {
        from.ok(&["add", "https://example.com", "--code", "open"]);
        from.ok(&["add", "https://example.com", "--code", "locked", "--password", "secret"]);
        let ran = from.run(&["export", "--format", "csv"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.starts_with("note: 1 links ask for a password"), "{ran:?}");
        on_both(|to| {
            to.ok(&["import", &to.write("links.csv", &ran.stdout)]);
            assert_eq!(to.json(&["get", "locked"])["status"], "disabled");
            assert_eq!(to.json(&["get", "open"])["status"], "active");
        });
    });
}

#[test]
fn tags_are_added_and_removed_one_by_one() {
    on_both(|place| {
        place.ok(&["add", "https://example.com", "--code", "a", "--tag", "x", "--tag", "y"]);
        let edited = place.json(&["edit", "a", "--add-tag", "z", "--remove-tag", "x", "--add-tag", "y"]);
        assert_eq!(edited["tags"], json!(["y", "z"]));
        place.run(&["edit", "a", "--add-tag", "z", "--tag", "q"]).failed(2, "cannot be used with");
        place.run(&["edit", "none", "--add-tag", "z"]).failed(2, "no link has the code");
    });
}

#[test]
fn tags_that_are_added_at_once_are_all_there() {
    on_both(|place| {
        place.ok(&["add", "https://example.com", "--code", "a"]);
        let tags: Vec<_> = (0..8).map(|number| format!("t{number}")).collect();
        let add = |tag: &str| place.command(&["edit", "a", "--add-tag", tag]).stdout(Stdio::null()).spawn();
        let adding: Vec<_> = tags.iter().map(|tag| add(tag).expect("the binary starts")).collect();
        for mut child in adding {
            assert!(child.wait().expect("it ends").success());
        }
        assert_eq!(place.json(&["get", "a"])["tags"], json!(tags));
    });
}

#[test]
fn who_sets_a_date_that_is_past_is_told() {
    on_both(|place| {
        let ran = place.run(&["add", "https://example.com", "--code", "a", "--expires", "2020-01-31"]);
        assert_eq!((ran.code, ran.stdout.is_empty()), (0, false), "{ran:?}");
        assert!(ran.stderr.contains("has expired already"), "{ran:?}");
        assert_eq!(place.json(&["get", "a"])["expires_at"], "2020-01-31T00:00:00Z");
    });
}

#[test]
fn the_address_that_is_printed_is_the_one_to_give() {
    let place = Place::with_api();
    for base in ["/", "/api/v1", "/api/v1/"] {
        place.ok(&["list", "--api", &format!("{}{base}", place.api_url())]);
    }
    let nowhere = Place::with_database();
    nowhere.run(&["list", "--token", "lr_x"]).failed(2, "--api");
}

#[test]
fn a_backup_is_a_sound_copy_and_replaces_nothing() {
    let place = Place::with_database();
    place.ok(&["add", "https://example.com", "--code", "a"]);
    let written = place.json(&["backup", "copy.db"]);
    assert_eq!(written["bytes"], place.path("copy.db").metadata().expect("written").len());
    assert_eq!(place.ok(&["check", "--database", "copy.db"]), "sound: 1 links\n");
    assert!(place.ok(&["get", "a", "--database", "copy.db"]).contains("https://example.com"));
    place.run(&["backup", "copy.db"]).failed(2, "copy.db: there is a file already");
}

#[test]
fn a_name_that_looks_like_a_uri_is_that_of_a_file() {
    let place = Place::with_database();
    let database = ["--database", "file:links.db?mode=memory"];
    let run = |args: &[&str]| place.ok(&[args, &database].concat());
    run(&["add", "https://example.com", "--code", "a"]);
    assert!(run(&["get", "a"]).contains("https://example.com"));
    run(&["backup", "file:copy.db"]);
    let names =
        std::fs::read_dir(place.path("")).expect("readable").map(|entry| entry.expect("one").file_name());
    let names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    assert!(names.iter().all(|name| name.starts_with("file:")), "{names:?}");
    assert_eq!(place.ok(&["check", "--database", "file:copy.db"]), "sound: 1 links\n");
}

#[test]
fn check_finds_a_corrupted_database() {
    let place = Place::with_database();
    for code in ["a", "b", "c", "d"] {
        place.ok(&["add", "https://example.com", "--code", code]);
    }
    assert_eq!(place.json(&["check"]), json!({"ok": true, "links": 4, "problems": []}));

    let path = place.path("links.db");
    let mut bytes = std::fs::read(&path).expect("readable");
    // Damage all pages but the first, which has the schema. SQLite's header has the page size at offset 16.
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    bytes[page..].chunks_mut(page).for_each(|bytes| bytes[page - 40..].fill(0xa5));
    std::fs::write(&path, bytes).expect("writable");
    let ran = place.run(&["check", "--json"]);
    ran.failed(1, "damaged");
    assert_eq!(ran.json()["ok"], false);
    assert!(ran.json()["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{ran:?}");

    std::fs::write(&path, "not SQLite, though as long as a header".repeat(40)).expect("writable");
    place.run(&["check"]).failed(2, "no database");
}

#[test]
fn a_closed_standard_output_is_no_failure() {
    on_both(|place| {
        let rows: String = (0..5000).map(|n| format!("https://example.com/{n},code{n}\n")).collect();
        place.ok(&["import", &place.write("links.csv", &format!("target,code\n{rows}"))]);
        for args in [&["list", "--all"][..], &["list", "--all", "--json"], &["export"], &["man"]] {
            let mut child = (place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
                .spawn()
                .expect("the binary starts");
            drop(child.stdout.take());
            let output = child.wait_with_output().expect("the command ends");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{args:?}");
        }
    });
}

#[test]
fn completions_and_manual_know_every_command() {
    let place = Place::with_database();
    #[rustfmt::skip]
    let commands = [
        "serve", "add", "get", "list", "edit", "rm", "import", "export", "stats", "key", "backup", "check",
        "completions", "man",
    ];
    let help = place.ok(&["--help"]);
    let page = place.ok(&["man"]);
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "--help: {command}");
        assert!(page.contains(&format!("linerate\\-links\\-{command}(1)")), "man: {command}");
    }
    assert!(help.contains("Exit codes: 0 done"), "{help}");
    assert!(page.contains(".SH \"EXIT STATUS\"\n0 done"), "{page}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        for command in commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert_eq!(place.ok(&["man", "pages"]), "");
    for command in commands {
        assert!(place.path(&format!("pages/linerate-links-{command}.1")).is_file(), "{command}");
    }
}

#[test]
fn a_token_in_the_environment_is_not_in_the_help() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut help = command(home.path());
    let output = help.env("LINERATE_LINKS_TOKEN", "lr_sesame").args(["list", "--help"]).output();
    let output = output.expect("the binary starts");
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("sesame"));
}

#[test]
fn an_api_that_cannot_be_used_is_told_of() {
    let place = Place::with_api();
    let url = place.api_url();
    for (args, code, why) in [
        (&["list", "--token", "lr_wrong"][..], 1, "key is unknown"),
        (&["add", "https://example.com", "--token", "lr_wrong"], 1, "key is unknown"),
        (&["list", "--api", "http://127.0.0.1:1"], 1, "no server answers at http://127.0.0.1:1/"),
        (&["list", "--api", &format!("{url}/elsewhere")], 2, "nothing is here"),
        (&["list", "--api", &url.replace("http:", "https:")], 2, "it does not speak TLS"),
        (&["list", "--cacert", "/nonexistent", "--api", "https://127.0.0.1:1"], 2, "/nonexistent"),
        (&["list", "--api", "nonsense"], 2, "https URL"),
        (&["list", "--database", "links.db"], 2, "cannot be used with"),
    ] {
        place.run(args).failed(code, why);
    }
    Place::with_database().run(&["list", "--api", url, "--database", "links.db"]).failed(2, "cannot be");
}

#[test]
fn a_change_that_is_not_answered_may_have_been_made() {
    use std::io::BufRead;

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // A server that is killed once it has read the request.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::io::BufReader::new(stream).read_line(&mut String::new()).ok();
        }
    });
    let place = Place::with_api();
    place.run(&["add", "https://example.com", "--api", &url]).failed(1, "not known whether it has done this");
    place.run(&["list", "--api", &url]).failed(1, "no server answers");
}

#[test]
fn domains_are_added_listed_changed_and_deleted() {
    on_both(|place| {
        assert_eq!(place.ok(&["domain", "add", "A.example"]), "a.example\n");
        let page = place.write("lost.html", "<h1>Lost</h1>");
        let made = place.json(&[
            "domain",
            "add",
            "b.example",
            "--root",
            "https://t.example",
            "--not-found-page",
            &page,
        ]);
        assert_eq!(
            (&made["host"], &made["root_target"], &made["not_found_html"]),
            (&json!("b.example"), &json!("https://t.example/"), &json!("<h1>Lost</h1>"))
        );
        let listed = place.json(&["domain", "list"]);
        let hosts: Vec<_> =
            listed["domains"].as_array().expect("domains").iter().map(|one| &one["host"]).collect();
        assert_eq!(hosts, ["a.example", "b.example"]);
        let table = place.ok(&["domain", "list"]);
        let lines: Vec<_> = table.lines().map(squeezed).collect();
        assert_eq!(lines[0], "HOST ROOT DEFAULT PAGE CREATED");
        assert!(lines[2].starts_with("b.example https://t.example/ - 13 bytes 20"), "{lines:?}");
        let changed = place.json(&[
            "domain",
            "edit",
            "b.example",
            "--clear-root",
            "--clear-not-found-page",
            "--default",
            "https://t.example/d",
        ]);
        assert_eq!(
            (&changed["root_target"], &changed["not_found_html"], &changed["default_target"]),
            (&Value::Null, &Value::Null, &json!("https://t.example/d"))
        );
        place.run(&["domain", "edit", "b.example"]).failed(2, "nothing to change: give --root, --default, ");
        place.run(&["domain", "edit", "c.example", "--clear-root"]).failed(2, "c.example");
        place.run(&["domain", "add", "192.0.2.1"]).failed(2, "not an address");
        place.run(&["domain", "add", "go.example"]).failed(2, "the default domain");
        place.run(&["domain", "add", "a.example"]).failed(1, "already");
        let long = place.write("long.html", &"x".repeat(65_537));
        place.run(&["domain", "edit", "a.example", "--not-found-page", &long]).failed(2, "65536 bytes");

        place.ok(&["add", "https://example.com", "--code", "one", "--domain", "a.example"]);
        place.run(&["domain", "rm", "a.example"]).failed(1, "has links");
        assert_eq!(place.ok(&["domain", "rm", "a.example", "--force"]), "deleted a.example\n");
        assert_eq!(place.json(&["domain", "rm", "b.example"]), json!({ "deleted": "b.example" }));
        assert_eq!(place.json(&["list"])["links"], json!([]));
        assert_eq!(place.json(&["domain", "list"]), json!({ "domains": [] }));
    });
}

#[test]
fn every_command_on_links_knows_domains() {
    on_both(|place| {
        place.ok(&["domain", "add", "a.example"]);
        let add = ["add", "https://example.com", "--code", "one"];
        assert_eq!(place.ok(&add), "https://go.example/one\n");
        assert_eq!(place.ok(&[&add[..], &["--domain", "A.Example"]].concat()), "https://a.example/one\n");
        place.run(&[&add[..], &["--domain", "b.example"]].concat()).failed(2, "b.example");
        let shown = place.ok(&["get", "one", "--domain", "a.example"]);
        let lines: Vec<_> = shown.lines().map(squeezed).collect();
        assert_eq!(lines[..2], ["short URL https://a.example/one", "domain a.example"]);
        assert!(!place.ok(&["get", "one"]).contains("domain"));
        let edited = place.json(&["edit", "one", "--domain", "a.example", "--title", "A", "--add-tag", "x"]);
        assert_eq!((&edited["title"], &edited["tags"]), (&json!("A"), &json!(["x"])));
        assert_eq!(place.json(&["get", "one", "--domain", "default"])["title"], Value::Null);

        let codes = |args: &[&str]| {
            let table = place.ok(&[&["list", "--sort", "code"], args].concat());
            table
                .lines()
                .skip(1)
                .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(codes(&[]), ["one", "a.example/one"]);
        assert_eq!(codes(&["--all"]), ["one", "a.example/one"]);
        assert_eq!(codes(&["--domain", "a.example"]), ["a.example/one"]);
        assert_eq!(codes(&["--domain", "default", "--all"]), ["one"]);
        assert_eq!(place.json(&["stats", "--domain", "a.example"])["clicks"], 0);
        assert_eq!(place.json(&["stats", "one", "--domain", "a.example"])["clicks"], 0);

        let all = place.ok(&["export"]);
        assert!(all.starts_with("domain,code,") && all.contains("\na.example,one,"), "{all}");
        let of_a = place.ok(&["export", "--domain", "a.example"]);
        assert_eq!(of_a.lines().count(), 2, "{of_a}");
        let file = place.write("links.csv", "code,target\ntwo,https://example.com\n");
        place.ok(&["import", &file, "--domain", "a.example"]);
        assert_eq!(codes(&[]), ["one", "a.example/one", "a.example/two"]);
        for args in [
            &["get", "one"][..],
            &["edit", "one", "--title", "t"],
            &["rm", "one"],
            &["list"],
            &["stats"],
            &["export"],
            &["import", &file],
        ] {
            place.run(&[args, &["--domain", "b.example"]].concat()).failed(2, "b.example");
        }
        assert_eq!(place.ok(&["rm", "one", "two", "--domain", "a.example"]), "deleted one\ndeleted two\n");
        assert_eq!(codes(&[]), ["one"]);
    });
}

#[test]
fn a_key_may_be_for_some_domains() {
    let place = Place::with_database();
    place.ok(&["domain", "add", "a.example"]);
    let args = ["key", "add", "a", "--scope", "write", "--domain", "a.example", "--domain", "default"];
    assert_eq!(place.json(&args)["domains"], json!(["a.example", "default"]));
    place.run(&["key", "add", "b", "--scope", "read", "--domain", "b.example"]).failed(2, "b.example");
    assert!(place.json(&["key", "add", "b", "--scope", "read"]).get("domains").is_none());
    let lines: Vec<_> = place.ok(&["key", "list"]).lines().map(squeezed).collect();
    assert_eq!(lines[0], "ID NAME SCOPE CREATED EXPIRES USED DOMAINS");
    assert!(lines[1].ends_with(" a.example default") && lines[2].ends_with(" (all)"), "{lines:?}");
}

#[test]
fn a_setting_of_the_server_is_none_of_a_domain() {
    let place = Place::with_database();
    let settings = place.write("links.toml", "root-target = 'https://t.example'\nunknown-host = 'default'\n");
    let made = place.json(&["domain", "add", "a.example", "--config", &settings]);
    assert_eq!(made["root_target"], Value::Null);
}

#[test]
fn unknown_hosts_are_not_found_only_where_the_own_one_is_known() {
    let place = Place::with_database();
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--unknown-host",
        "not-found",
        "--check",
    ];
    let run = |public: Option<&str>| {
        let mut command = command(&place.path(""));
        command.args(serve).args(public.map(|url| ["--public-url", url]).iter().flatten());
        command.output().expect("it runs")
    };
    assert!(run(Some("https://go.example")).status.success());
    let refused = run(None);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--public-url"), "{refused:?}");
}
