//! What many clients hold together is limited, and others are still served.

use std::io::Read;

use serde_json::json;
use testkit::until;

use crate::client::Client;
use crate::place::{Place, Server, ask, problem, user, value};

/// Bytes of a batch, as in the module.
const BATCH: usize = 8 << 20;

const JSON: &str = "Content-Type: application/json\r\n";

/// A client that was told to continue and has sent a part of its body. The error is a client that was refused.
fn begin(server: &Server, part: usize) -> Result<Client, Client> {
    let mut client = server.connect();
    client.send(format!(
        "POST /v1/users:batchCreate HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {BATCH}\r\n\
         Expect: 100-continue\r\n\r\n"
    ));
    let answer = client.receive_head().expect("an answer");
    if answer.status == 100 {
        client.send(vec![b' '; part]);
        return Ok(client);
    }
    let answer = client.receive_body(answer).expect("a body");
    problem(&answer, 503);
    assert!(answer.field("retry-after").is_some(), "{answer:?}");
    Err(client)
}

#[test]
fn bodies_under_way_have_a_sum_and_others_are_served_meanwhile() {
    let place = Place::new();
    let server = place.serve(&[]);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    // Each sends almost all of its body, but never the rest.
    let (held, refused): (Vec<_>, Vec<_>) =
        (0..60).map(|_| begin(&server, BATCH - 1)).partition(Result::is_ok);
    assert_eq!((held.len(), refused.len()), (8, 52), "64 MiB");
    // Requests without a body, and bodies that are sent at once, are still served.
    assert_eq!(server.get(&format!("/v1/users/{id}")).status, 200);
    assert_eq!(server.send("POST", "/v1/users", "", &user("b@example.org")).status, 201);
    let memory = server.metric("process_resident_memory_bytes");
    assert!(memory < 400e6, "{memory} bytes");
    // What they held is given back.
    drop((held, refused));
    until("there is room again", || begin(&server, 1).is_ok());
}

#[test]
fn a_body_that_drips_ends() {
    let place = Place::new();
    let server = place.serve(&["--body-timeout", "1"]);
    let mut client = begin(&server, 1).unwrap_or_else(|_| panic!("there is room"));
    let answer = loop {
        // A dripping client: it waits up to 50 ms for an answer, and then sends one more byte.
        client.stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("a timeout");
        match client.receive(true) {
            Ok(answer) => break answer,
            Err(_) => client.send(" "),
        }
    };
    problem(&answer, 408);
}

#[test]
fn large_answers_under_way_have_a_sum_however_slowly_they_are_read() {
    let place = Place::new();
    let server = place.serve(&["--max-bodies-bytes", "4000000", "--max-batch-bytes", "4000000"]);
    let mut sent = user("x@example.org");
    let mut ids = Vec::new();
    for number in 0..120 {
        sent["email"] = json!(format!("u{number}@example.org"));
        let settings = (0..55).map(|at| (format!("s{at}"), json!("x".repeat(1000))));
        sent["preferences"] = settings.collect::<serde_json::Map<_, _>>().into();
        let answer = server.send("POST", "/v1/users", "", &sent);
        assert_eq!(answer.status, 201, "{}", answer.text());
        ids.push(value(&answer)["id"].clone());
    }
    // Each answer has 60 users of 57 KB, and no client reads. What the kernel buffers is not the service's memory.
    let mut slow: Vec<Client> = (0..8)
        .map(|_| {
            let client = server.connect();
            rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 4096).expect("an option");
            client
        })
        .collect();
    let body = json!({"ids": &ids[..60]}).to_string();
    let mut statuses = Vec::new();
    for client in &mut slow {
        client.send(format!(
            "POST /v1/users:batchGet HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        statuses.push(client.receive_head().expect("a head").status);
    }
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
    let one = format!("/v1/users/{}", ids[0].as_str().expect("an id"));
    assert_eq!(server.get(&one).status, 200);
    assert_eq!(server.get("/v1/users?limit=1").status, 200);
    // What was written is told, although a read of as much is refused.
    let mut batch = |letter: &str| {
        let users = (0..60).map(|number| {
            sent["email"] = json!(format!("{letter}{number}@example.org"));
            sent.clone()
        });
        json!({ "users": users.collect::<Vec<_>>() })
    };
    assert_eq!(server.send("POST", "/v1/users:batchCreate", "", &batch("w")).status, 201);
    // Such answers count too: another large write is refused before it is done.
    let mut unread = server.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&unread.stream, 4096).expect("an option");
    let text = batch("v").to_string();
    let head = "POST /v1/users:batchCreate HTTP/1.1\r\nHost: localhost\r\n";
    unread.send(format!("{head}{JSON}Content-Length: {}\r\n\r\n{text}", text.len()));
    assert_eq!(unread.receive_head().expect("a head").status, 201);
    let count = || value(&server.get("/v1/users:count"))["count"].clone();
    let before = count();
    assert_eq!(server.send("POST", "/v1/users:batchCreate", "", &batch("u")).status, 503);
    assert_eq!(count(), before);
    // So is a small change, which a large user may answer.
    assert_eq!(server.send("PATCH", &one, "", &json!({ "name": "B" })).status, 503);
    slow.push(unread);
    for client in &mut slow {
        client.stream.shutdown(std::net::Shutdown::Both).expect("it is open");
        let _ = client.stream.read(&mut [0; 1]);
    }
    drop(slow);
    until("there is room again", || {
        ask(&mut server.connect(), "POST", "/v1/users:batchGet", JSON, &body).status == 200
    });
    // A single answer always has room.
    assert_eq!(server.send("POST", "/v1/users:batchGet", "", &json!({"ids": ids})).status, 200);
}

/// What one batch may take beside its body and what is made of it, in bytes.
const MOST: u64 = 100 << 20;

#[test]
fn a_batch_takes_little_memory_whatever_is_in_it() {
    let place = Place::new();
    let (read, write) = (place.key("read", &[]), place.key("write", &[]));
    // Each of these objects takes some hundred bytes of memory as a value, for six in the body.
    let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let list =
        |element: &str, count: usize| format!("[{}{element}]", format!("{element},").repeat(count - 1));
    let many = list(&nested(16), 30_000);
    let user = |more: &str| format!(r#"{{"email":"a@example.org","name":"A"{more}}}"#);
    let large = user(&format!(r#","x":{}"#, list(&nested(14), 30_000)));
    let kept = list(&user(&format!(r#","x":{}"#, list(&nested(12), 38))), 999);
    let (get, create) = ("/v1/users:batchGet", "/v1/users:batchCreate");
    let id = "\"019aa5a3-7f6e-7000-8000-000000000001\"";
    for (flags, path, body, expected) in [
        (&[][..], get, format!(r#"{{"ids":[1],"x":{many}}}"#), &["/ids/0", "/x"][..]),
        (&[], get, format!(r#"{{"x":{many},"ids":[1]}}"#), &["/x", "/ids/0"]),
        (&[], get, format!(r#"{{"ids":[{id}],"x":{many}}}"#), &["/x"]),
        (&[], get, format!(r#"{{"ids":{}}}"#, list("\"\"", 500_000)), &["/ids/0", "/ids/1"]),
        (&[], create, format!(r#"{{"users":[1],"x":{many}}}"#), &["/users/0", "/x"]),
        (&[], create, format!(r#"{{"x":{many},"users":[{}]}}"#, user("")), &["/x"]),
        (&[], create, format!(r#"{{"users":{}}}"#, list(&user(""), 170_000)), &["/users"]),
        (&[], create, format!(r#"{{"users":[{large}]}}"#), &["/users/0/x/272/"]),
        (
            &["--unknown-fields", "keep"],
            create,
            format!(r#"{{"users":{},{{}}]}}"#, kept.trim_end_matches(']')),
            &["/users/999/email", "/users/999/name"],
        ),
    ] {
        let server = place.serve(&[&["--auth", "keys"][..], flags].concat());
        let key = if path == get { &read } else { &write };
        let fields = format!("{JSON}Authorization: Bearer {key}\r\n");
        // The first request takes some memory of its own.
        assert_eq!(server.ask("GET", "/v1/users:count", &fields, "").status, 200);
        let base = server.peak();
        let answer = server.ask("POST", path, &fields, &body);
        let (begin, found) = (&body[..40], problem(&answer, 422));
        let is_as = |(found, expected): (&String, &&str)| found.starts_with(*expected);
        assert!(found.len() >= expected.len() && found.iter().zip(expected).all(is_as), "{begin}: {found:?}");
        let taken = server.peak() - base;
        assert!(taken < MOST, "{begin}: {taken} bytes");
    }
    assert_eq!(value(&place.serve(&[]).get("/v1/users:count")), json!({"count": 0}));
}
