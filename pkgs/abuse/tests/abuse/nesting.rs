//! Deep, wide and long documents, for everything that parses. The same process answers each one with a problem.

use std::fs;

use abuse::client::Client;
use abuse::program::{Place, binary, run};

use crate::services::{Service, api, files, links};

/// What is put into a body: its name and its bytes.
type Document = (&'static str, Vec<u8>);

/// Documents of about this many bytes.
fn documents(bytes: usize) -> Vec<Document> {
    let repeated = |what: &str| what.repeat(bytes / what.len()).into_bytes();
    let around =
        |start: &str, middle: &str, end: &str| [start.as_bytes(), &repeated(middle), end.as_bytes()].concat();
    let levels = bytes / 12;
    let closed = [repeated_to("[", levels), repeated_to("]", levels)].concat();
    let objects = [repeated_to(r#"{"a":"#, levels), b"1".to_vec(), repeated_to("}", levels)].concat();
    let keys = (0..bytes / 12).map(|number| format!("\"k{number}\":{number}")).collect::<Vec<_>>().join(",");
    vec![
        ("open arrays", repeated("[")),
        ("open objects", repeated(r#"{"a":"#)),
        ("arrays in arrays", closed.clone()),
        ("objects in objects", objects.clone()),
        ("both in turns", repeated(r#"[{"a":"#)),
        ("closed and never opened", repeated("]")),
        ("deep where a name is", [br#"{"name":"#.to_vec(), closed.clone(), b"}".to_vec()].concat()),
        ("deep where an email is", [br#"{"email":"#.to_vec(), repeated("["), b"}".to_vec()].concat()),
        (
            "deep in preferences",
            [br#"{"email":"a@b.example","name":"n","preferences":"#.to_vec(), objects.clone(), b"}".to_vec()]
                .concat(),
        ),
        ("deep where nothing is known", [br#"{"unknown":"#.to_vec(), closed.clone(), b"}".to_vec()].concat()),
        ("deep in a list of users", [br#"{"users":["#.to_vec(), objects.clone(), b"]}".to_vec()].concat()),
        ("deep in a list of ids", [br#"{"ids":["#.to_vec(), closed.clone(), b"]}".to_vec()].concat()),
        ("deep in a list", [b"[".to_vec(), objects, b"]".to_vec()].concat()),
        ("deep in a list of codes", [br#"{"codes":["#.to_vec(), closed, b"]}".to_vec()].concat()),
        ("many keys", format!("{{{keys}}}").into_bytes()),
        ("one key many times", format!("{{{}}}", vec!["\"name\":\"n\""; bytes / 11].join(",")).into_bytes()),
        ("a long text", around("\"", "x", "\"")),
        ("a long text of escapes", around("{\"name\":\"", "\\ud83d", "\"}")),
        ("a long name", around("{\"", "x", "\":1}")),
        ("a long number", around("{\"name\":", "9", "}")),
        ("a long fraction", around("{\"name\":0.", "9", "}")),
        ("a long exponent", around("{\"name\":1e", "9", "}")),
        ("a text without end", around("{\"name\":\"", "x", "")),
        ("spaces", repeated(" ")),
        ("zeros", vec![0; bytes]),
        ("bytes that are no text", vec![0xff; bytes]),
        ("commas", repeated(",")),
        ("quotes", repeated("\"")),
        ("lines", repeated("{}\n")),
    ]
}

fn repeated_to(what: &str, count: usize) -> Vec<u8> {
    what.repeat(count).into_bytes()
}

/// The sizes, in bytes: from one that once ended the process to the most that a body may have.
const SMALL: usize = 20_000;
const MIDDLE: usize = 1 << 20;
const LARGEST: usize = (8 << 20) - 200;

/// Sends documents to endpoints, and checks that the same process answers each with a problem.
fn feed(
    service: &mut Service,
    listener: usize,
    kind: &str,
    endpoints: &[(&str, &str)],
    documents: &[Document],
) {
    let door = service.listeners[listener].door.clone();
    for (method, target) in endpoints {
        for (name, document) in documents {
            let what = format!("{name} of {} bytes by {method} {target}", document.len());
            let fields = format!("{}Content-Type: {kind}\r\nConnection: close\r\n", service.token);
            let mut client = Client::on(door.connect().expect("it listens")).expect("a connection");
            let answered = client.ask(method, target, &fields, document);
            let answer = service.program.answered(&what, answered);
            // An import accepts the rows that it can, and reports the others.
            if target.ends_with("/import") && answer.status == 200 {
                continue;
            }
            assert!((400..500).contains(&answer.status), "{what}: {} {}", answer.status, shown(&answer.body));
            assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{what}");
            let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(problem["status"], answer.status, "{what}: {problem}");
            assert!(answer.body.len() < 64 << 10, "{what}: a problem of {} bytes", answer.body.len());
        }
    }
    for listener in &service.listeners {
        listener.visit().unwrap_or_else(|why| panic!("{why}"));
    }
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()
}

const USER: &str = "/v1/users/01890000-0000-7000-8000-000000000000";

#[test]
fn no_document_ends_the_api() {
    let mut service = api(&["--workers", "1"]);
    let one = [("POST", "/v1/users"), ("POST", "/v1/users:validate"), ("PUT", USER)];
    let many = [
        ("POST", "/v1/users:batchCreate"),
        ("POST", "/v1/users:batchGet"),
        ("POST", "/v1/users:batchDelete"),
    ];
    let json = "application/json";
    for bytes in [SMALL, MIDDLE] {
        feed(&mut service, 0, json, &one, &documents(bytes));
        feed(&mut service, 0, "application/merge-patch+json", &[("PATCH", USER)], &documents(bytes));
    }
    for bytes in [SMALL, MIDDLE] {
        feed(&mut service, 0, json, &many, &documents(bytes));
    }
    feed(&mut service, 0, json, &many[..1], &documents(LARGEST));
}

#[test]
fn no_patch_of_a_user_that_is_there_ends_the_api() {
    let mut service = api(&["--workers", "1"]);
    let address = service.listeners[0].door.address;
    let user = br#"{"email":"a@b.example","name":"n","preferences":{"a":{"b":1}}}"#;
    let created =
        abuse::program::ask(address, "POST", "/v1/users", "Content-Type: application/json\r\n", user)
            .expect("an answer");
    assert_eq!(created.status, 201, "{}", shown(&created.body));
    let id: serde_json::Value = serde_json::from_slice(&created.body).expect("JSON");
    let target = format!("/v1/users/{}", id["id"].as_str().expect("an id"));
    // A document that only changes unknown members isn't an error, so those are left out.
    let documents: Vec<_> =
        documents(SMALL).into_iter().filter(|(name, _)| !name.contains("preferences")).collect();
    feed(
        &mut service,
        0,
        "application/merge-patch+json",
        &[("PATCH", &target), ("PUT", &target)],
        &documents,
    );
}

#[test]
fn no_document_ends_links() {
    let mut service = links(&["--workers", "1"]);
    let one = [("POST", "/api/v1/links"), ("PATCH", "/api/v1/links/abc")];
    let many = [("POST", "/api/v1/links/batch"), ("POST", "/api/v1/links/batch-delete")];
    let import = [("POST", "/api/v1/links/import")];
    let json = "application/json";
    for bytes in [SMALL, MIDDLE] {
        feed(&mut service, 1, json, &one, &documents(bytes));
    }
    for bytes in [SMALL, LARGEST] {
        feed(&mut service, 1, json, &many, &documents(bytes));
        feed(&mut service, 1, json, &import, &documents(bytes));
        feed(&mut service, 1, "text/csv", &import, &tables(bytes));
    }
}

/// Texts that aren't tables of links.
fn tables(bytes: usize) -> Vec<Document> {
    let head = "code,target\n";
    let with = |what: &str| [head.as_bytes(), what.repeat(bytes / what.len()).as_bytes()].concat();
    vec![
        ("quotes", with("\"")),
        ("an open quote", [head.as_bytes(), b"\"", &vec![b'x'; bytes]].concat()),
        ("commas", with(",")),
        ("empty lines", with("\n")),
        ("a long field", [head.as_bytes(), &vec![b'x'; bytes]].concat()),
        ("a long head", vec![b'x'; bytes]),
        ("many columns", "c,".repeat(bytes / 2).into_bytes()),
        ("zeros", vec![0; bytes]),
        ("bytes that are no text", with("\u{fffd},\r")),
    ]
}

/// Cursors and tokens as long as a head can hold.
#[test]
fn no_cursor_and_no_token_ends_a_service() {
    let deep = ["W1tbW1tb", "eyJhIjp7", "/////w", "AAAA", "-_-_", "%5B", "%22%7B", "=", "0", "~"];
    for service in [links(&[]), api(&[])] {
        let admin = service.name == "links";
        let listener = service.listeners[usize::from(admin)].clone();
        let list = if admin { "/api/v1/links?cursor=" } else { "/v1/users?cursor=" };
        for part in deep {
            let text = part.repeat(6000 / part.len());
            for (target, fields) in [
                (format!("{list}{text}"), service.token.clone()),
                (list.replace("?cursor=", ""), format!("Authorization: Bearer {text}\r\n")),
                (list.replace("?cursor=", ""), format!("{}Idempotency-Key: {text}\r\n", service.token)),
                (list.replace("?cursor=", ""), format!("{}If-Match: {text}\r\n", service.token)),
            ] {
                let mut client =
                    Client::on(listener.door.connect().expect("it listens")).expect("a connection");
                let answered = client.ask("GET", &target, &fields, b"");
                let answer = service.program.answered(part, answered);
                assert!(answer.status < 500, "{part}: {answer:?}");
                if target.contains('?') {
                    assert!((400..500).contains(&answer.status), "{part}: {answer:?}");
                    assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{answer:?}");
                }
            }
        }
        listener.visit().unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Files that the operator names: rules, settings, links to import. Each is refused in one line, with exit code 2 or 1,
/// and never kills the command by a signal.
#[test]
fn no_file_ends_a_command_but_in_order() {
    let place = Place::new();
    let nested =
        |start: &str, middle: &str, count: usize| format!("{start}{}", middle.repeat(count)).into_bytes();
    let dotted = |count: usize| format!("{} = 1\n", vec!["a"; count].join(".")).into_bytes();
    let keys: String = (0..100_000).map(|number| format!("k{number} = 1\n")).collect();
    let mut texts = vec![
        ("open arrays", nested("a = ", "[", 20_000)),
        ("more open arrays", nested("a = ", "[", 2 << 20)),
        ("open tables", nested("a = ", "{a=", 100_000)),
        ("dots", dotted(20_000)),
        (
            "a table of dots",
            [b"[".to_vec(), vec!["a"; 20_000].join(".").into_bytes(), b"]\n".to_vec()].concat(),
        ),
        ("tables of tables", nested("", "[[a]]\n", 100_000)),
        ("many keys", keys.into_bytes()),
        ("a long text", [b"a = \"".to_vec(), vec![b'x'; 4 << 20], b"\"\n".to_vec()].concat()),
        ("a long number", [b"a = ".to_vec(), vec![b'9'; 1 << 20], b"\n".to_vec()].concat()),
        ("zeros", vec![0; 1 << 20]),
        ("bytes that are no text", vec![0xff; 1 << 20]),
    ];
    // A file of spaces is valid settings, just like an empty one.
    texts.extend(documents(SMALL).into_iter().filter(|(name, _)| *name != "spaces"));
    for (name, text) in &texts {
        let toml = place.file("file.toml", text);
        let json = place.file("file.json", text);
        let csv = place.file("file.csv", text);
        let [toml, json, csv] = [&toml, &json, &csv].map(|path| path.to_str().expect("text"));
        let database = place.text("links.db");
        let sqlite = format!("sqlite:{}", place.text("users.db"));
        let root = place.text("");
        for (program, arguments) in [
            ("linerate-files", &["check", toml][..]),
            ("linerate-files", &["serve", "--listen", "127.0.0.1:0", "--root", &root, "--rules", toml]),
            ("linerate-files", &["serve", "--listen", "127.0.0.1:0", "--root", &root, "--config", toml]),
            (
                "linerate-api",
                &["serve", "--listen", "127.0.0.1:0", "--database-url", &sqlite, "--config", toml],
            ),
            (
                "linerate-links",
                &["serve", "--listen", "127.0.0.1:0", "--database", &database, "--config", toml],
            ),
            ("linerate-links", &["import", "--database", &database, json]),
            ("linerate-links", &["import", "--database", &database, csv]),
        ] {
            let output = run(program, arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            let what = format!(
                "{program} {} with {name}: {:?}, {}",
                arguments[0],
                output.status,
                shown(&output.stderr)
            );
            // Empty lines and the like aren't rows, so importing none of them succeeds.
            let fine = arguments[0] == "import" && output.status.code() == Some(0);
            assert!(fine || matches!(output.status.code(), Some(1 | 2)), "{what}");
            assert!(fine || arguments[0] == "import" || said.trim().lines().count() == 1, "{what}");
            assert!(output.stderr.len() < 64 << 10, "{what}");
        }
        fs::remove_file(&database).ok();
    }
    assert!(binary("linerate").is_file());
}

/// Long and wide heads, on every listener.
#[test]
fn no_head_ends_a_service() {
    for service in [links(&[]), api(&[]), files(&[])] {
        for listener in service.listeners.clone().into_iter().filter(|listener| !listener.http2) {
            for (name, head) in [
                ("a long target", format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a/".repeat(1 << 20))),
                ("a long method", format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "A".repeat(1 << 20))),
                ("a long field", format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(1 << 20))),
                ("a long name", format!("GET / HTTP/1.1\r\nHost: h\r\n{}: a\r\n\r\n", "X".repeat(1 << 20))),
                ("many fields", format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(100_000))),
                (
                    "many ranges",
                    format!("GET / HTTP/1.1\r\nHost: h\r\nRange: bytes={}\r\n\r\n", "0-,".repeat(2000)),
                ),
                ("a query", format!("GET /?{} HTTP/1.1\r\nHost: h\r\n\r\n", "a=b&".repeat(1500))),
                ("empty lines", "\r\n".repeat(1 << 19)),
                ("zeros", "\0".repeat(1 << 20)),
            ] {
                let mut client =
                    Client::on(listener.door.connect().expect("it listens")).expect("a connection");
                // A server that refuses the head may not read all of it.
                let _ = client.send(&head);
                let answered = client.receive("GET");
                service.program.assert_runs(name);
                if let Ok(answer) = answered {
                    assert!(
                        answer.status < 500 || matches!(answer.status, 501 | 505),
                        "{}: {name}: {answer:?}",
                        listener.name
                    );
                }
            }
            listener.visit().unwrap_or_else(|why| panic!("{why}"));
        }
        let pid = service.program.id();
        service.program.assert_runs("heads");
        assert_eq!(pid, service.program.id());
    }
}
