//! Deep, wide or long bodies, cursors and headers. Each is refused, and other clients are not affected.

use serde_json::{Value, json};

use crate::place::{Place, Server, problem, user, value};

/// The depth of nesting. A recursive parser would overflow a thread's stack.
const LEVELS: usize = 20_000;

const JSON: &str = "Content-Type: application/json\r\n";

/// The operations that take a body.
fn operations(id: &str) -> [(&'static str, String); 7] {
    [
        ("POST", "/v1/users".to_owned()),
        ("POST", "/v1/users:validate".to_owned()),
        ("POST", "/v1/users:batchCreate".to_owned()),
        ("POST", "/v1/users:batchGet".to_owned()),
        ("POST", "/v1/users:batchDelete".to_owned()),
        ("PUT", format!("/v1/users/{id}")),
        ("PATCH", format!("/v1/users/{id}")),
    ]
}

/// Checks that every operation that takes a body refuses this one.
fn refused(server: &Server, id: &str, body: &str) {
    for (method, path) in operations(id) {
        let answer = server.ask(method, &path, JSON, body);
        let begin: String = body.chars().take(60).collect();
        assert!(matches!(answer.status, 400 | 413 | 422), "{method} {path} {begin}: {answer:?}");
        problem(&answer, answer.status);
        assert!(answer.body.len() < 64 << 10, "{method} {path} {begin}: {} bytes", answer.body.len());
    }
}

/// The document with each of its values replaced in turn.
fn replacements(value: &Value, replacement: &str) -> Vec<String> {
    const MARK: &str = "here";
    fn places(value: &Value, at: String, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, value)| places(value, format!("{at}/{name}"), found));
            }
            Value::Array(list) => {
                list.iter()
                    .enumerate()
                    .for_each(|(index, value)| places(value, format!("{at}/{index}"), found));
            }
            _ => {}
        }
        found.push(at);
    }
    let mut pointers = Vec::new();
    places(value, String::new(), &mut pointers);
    let replaced = pointers.iter().map(|pointer| {
        let mut value = value.clone();
        *value.pointer_mut(pointer).expect("a place") = json!(MARK);
        value.to_string().replace(&format!("\"{MARK}\""), replacement)
    });
    replaced.collect()
}

#[test]
fn what_is_deep_is_refused_wherever_it_is_and_the_service_stays() {
    let place = Place::new();
    let limits = ["--max-user-bytes", "1048576"];
    let server = place.serve(&limits);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    let closed = |open: &str, close: &str| format!("{}1{}", open.repeat(LEVELS), close.repeat(LEVELS));
    let deep = [
        "[".repeat(LEVELS),
        closed("[", "]"),
        r#"{"a":"#.repeat(LEVELS),
        closed(r#"{"a":"#, "}"),
        r#"[{"a":"#.repeat(LEVELS),
    ];
    for body in &deep {
        refused(&server, &id, body);
    }
    // The deep value replaces each member in turn, where something else is expected.
    let batches = [json!({"users": [user("b@example.org")]}), json!({"ids": [id]})];
    for document in batches.iter().chain([&user("b@example.org")]) {
        for body in deep.iter().flat_map(|deep| replacements(document, deep)) {
            refused(&server, &id, &body);
        }
    }
    // Where unknown members are kept, too.
    let kept = place.serve(&[&limits[..], &["--unknown-fields", "keep"]].concat());
    for body in deep.iter().map(|deep| format!(r#"{{"name":"A","email":"c@example.org","x":{deep}}}"#)) {
        refused(&kept, &id, &body);
    }
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 1}));
}

#[test]
fn what_is_wide_or_long_is_refused_and_told_briefly() {
    let place = Place::new();
    let server = place.serve(&[]);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    let name = "n".repeat(7 << 20);
    let faults: String = (0..60).map(|index| format!("\"{index} \":{{}},")).collect();
    for body in [
        format!("[{}1]", "1,".repeat(3 << 20)),
        format!("{{{}\"a\":1}}", (0..500_000).map(|index| format!("\"{index}\":1,")).collect::<String>()),
        // Many faults would each repeat this name.
        format!(r#"{{"users":[{{"preferences":{{"{name}":{{{faults}"a":1}}}}}}]}}"#),
        format!(r#"{{"users":[{{"name":1,"email":"{name}","{name}":1}}]}}"#),
        format!(r#"{{"ids":["{name}"]}}"#),
        format!(r#"{{"ids":[{}1]}}"#, "\"\u{1f600}\",".repeat(100_000)),
    ] {
        refused(&server, &id, &body);
    }
}

#[test]
fn cursors_queries_and_fields_of_any_shape_are_refused() {
    let place = Place::new();
    let server = place.serve(&[]);
    server.create("a@example.org");
    server.create("b@example.org");
    let cursor = value(&server.get("/v1/users?limit=1"))["next"].as_str().expect("a cursor").to_owned();
    // Every letter of it matters.
    for at in 0..cursor.len() {
        let mut changed = cursor.clone();
        changed.replace_range(at..=at, if &cursor[at..=at] == "A" { "B" } else { "A" });
        let answer = server.get(&format!("/v1/users?limit=1&cursor={changed}"));
        // The last letter has bits without meaning; they have to be 0.
        assert_eq!(answer.status, 400, "{at}: {changed}");
    }
    let brackets = "%5B".repeat(2_000);
    for query in [
        format!("cursor={brackets}"),
        format!("cursor={}", "A".repeat(7_000)),
        format!("cursor={cursor}&sort=-name"),
        format!("cursor={cursor}&q=a"),
        format!("q={brackets}"),
        format!("fields={}", "id,".repeat(2_000)),
        "a[b][c]=1&".repeat(500).to_string(),
        "&".repeat(7_000) + "x",
    ] {
        problem(&server.get(&format!("/v1/users?{query}")), 400);
    }
    for fields in [
        format!("If-None-Match: {}\r\n", "\"1".repeat(2_000)),
        format!("If-None-Match: {}x\r\n", "\"1\",".repeat(1_500)),
        format!("Idempotency-Key: {}\r\n", "k".repeat(256)),
    ] {
        let answer =
            server.send("PATCH", "/v1/users/019aa5a3-7f6e-7000-8000-000000000001", &fields, &json!({}));
        assert!(matches!(answer.status, 400 | 404), "{answer:?}");
    }
}
