//! A request after a refused or closing one is never served. The only accepted expectation is 100-continue. A head that
//! never ends is answered with 408.

use abuse::client::Client;
use abuse::conversation::{Conversation, Heard};
use abuse::model::{Step, steps};
use abuse::secure::{Either, say_goodbye};

use crate::services::{Listener, Service, api, files, links};

/// How many faults are shown one by one.
const SHOWN: usize = 12;

/// Holds a conversation with a listener.
pub fn converse(listener: &Listener, conversation: &Conversation) -> std::io::Result<Heard> {
    conversation.hold_on(listener.door.connect()?, &listener.rules, |stream| match stream {
        Either::Plain(stream) => stream.shutdown(std::net::Shutdown::Write),
        Either::Secure(stream) => say_goodbye(stream),
    })
}

/// The HTTP/1.1 listeners of all services.
pub fn everywhere(services: &[Service]) -> Vec<Listener> {
    services.iter().flat_map(|service| service.listeners.clone()).filter(|listener| !listener.http2).collect()
}

/// Requests that are refused, or are the last of their connection.
fn last_words(listener: &Listener) -> Vec<String> {
    let visit = listener.visit;
    let with = |fields: &str| format!("GET {visit} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let form = |fields: &str| format!("{}{fields}\r\n", listener.form);
    let mut all = vec![
        with("Connection: close\r\n"),
        with("Connection: x, close\r\n"),
        with("Expect: more\r\n"),
        with("Expect: 100-continue, more\r\n"),
        with("Host: localhost\r\n"),
        with("A: b\r\n c\r\n"),
        with("A: b\n"),
        with("A: \0\r\n"),
        with("A : b\r\n"),
        with("A b\r\n"),
        with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        with("Content-Length: 5\r\nContent-Length: 5\r\n"),
        with("Content-Length: 5, 5\r\n"),
        with("Content-Length: +5\r\n"),
        with("Content-Length: 5\r\nContent-Length: 6\r\n"),
        with("Transfer-Encoding: gzip\r\n"),
        with("Transfer-Encoding: chunked, gzip\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        with(&"X: y\r\n".repeat(200)),
        format!("GET {visit} HTTP/1.1\r\n\r\n"),
        format!("GET {visit} HTTP/1.0\r\n\r\n"),
        format!("GET {visit} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        format!("GET {visit} HTTP/2.0\r\nHost: localhost\r\n\r\n"),
        format!("GET {visit}\r\n\r\n"),
        format!("GET  {visit} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("G\u{e9}T {visit} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET {visit} HTTP/1.1\nHost: localhost\n\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}".to_owned(),
        // links handles requests that aren't plain in another way.
        form("Connection: close\r\nContent-Length: 1\r\n") + "x",
        form("Content-Length: 1\r\nExpect: more\r\n") + "x",
        form("Transfer-Encoding: chunked\r\n") + "5\r\nabcdefg\r\n0\r\n\r\n",
        form("Transfer-Encoding: chunked\r\n") + "x\r\n\r\n",
        form("Transfer-Encoding: chunked\r\n") + "1\nx\n0\n\n",
        form("Transfer-Encoding: gzip\r\nConnection: close\r\n"),
    ];
    // An earlier request on the connection changes nothing, however it is handled.
    let before: Vec<String> = all
        .iter()
        .flat_map(|last| {
            let plain = format!("{}{last}", with(""));
            let handed = format!("{}x{last}", form("Content-Length: 1\r\n"));
            [plain, handed]
        })
        .collect();
    all.extend(before);
    all
}

#[test]
fn what_follows_a_last_request_is_not_served() {
    let services = [links(&[]), api(&[]), files(&[])];
    let mut wrong = Vec::new();
    for listener in everywhere(&services) {
        for last in last_words(&listener) {
            let visit = listener.visit;
            let more = format!("GET {visit} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(2);
            // A lenient parser would also read this as a request.
            let loose = format!("GET {visit} HTTP/1.1\nHost: localhost\n\n");
            for after in [&more, &loose] {
                let conversation = Conversation::of(format!("{last}{after}"));
                let steps = steps(&conversation.bytes, &listener.rules);
                let ends = steps.last().is_some_and(|step| match step {
                    Step::Request(asked) => {
                        !asked.keep || asked.doubtful || asked.body == abuse::model::Body::Broken
                    }
                    Step::Refused(_) | Step::Cut => true,
                }) || steps.iter().any(|step| matches!(step, Step::Request(asked) if !asked.keep));
                assert!(ends, "{last:?} does not end a connection: {steps:?}");
                let held = converse(&listener, &conversation).map_err(|error| error.to_string()).and_then(
                    |received| {
                        received.hold(&conversation.bytes, &listener.rules, |asked, answer| {
                            listener.fits(asked, answer)
                        })
                    },
                );
                if let Err(why) = held {
                    wrong.push(format!(
                        "{}: {:?}: {why}",
                        listener.name,
                        String::from_utf8_lossy(&conversation.bytes)
                    ));
                }
            }
        }
    }
    let count = wrong.len();
    wrong.truncate(SHOWN);
    assert!(wrong.is_empty(), "{count} times:\n{}", wrong.join("\n"));
}

#[test]
fn what_is_expected_is_100_continue_or_nothing() {
    let services = [links(&[]), api(&[]), files(&[])];
    let mut wrong = Vec::new();
    for listener in everywhere(&services) {
        for expected in ["more", "100", "200-ok", "100-continue, more", ""] {
            for (what, request) in [
                (
                    "GET",
                    format!(
                        "GET {} HTTP/1.1\r\nHost: localhost\r\nExpect: {expected}\r\n\r\n",
                        listener.visit
                    ),
                ),
                ("form", format!("{}Expect: {expected}\r\nContent-Length: 1\r\n\r\nx", listener.form)),
            ] {
                let mut client =
                    Client::on(listener.door.connect().expect("it listens")).expect("a connection");
                client.send(&request).expect("it reads");
                match client.receive("GET") {
                    Ok(answer) if answer.status == 417 && answer.closes => {}
                    other => {
                        wrong.push(format!("{}: {what} that expects {expected:?}: {other:?}", listener.name))
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_head_that_never_ends_is_answered_408() {
    let services = [links(&[]), api(&[]), files(&[])];
    let halves = ["G", "GET / HTTP/1.1\r\nHost:", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n"];
    // All wait at the same time, each until its listener's own deadline.
    let mut waiting = Vec::new();
    for listener in everywhere(&services) {
        for half in halves {
            let mut client = Client::on(listener.door.connect().expect("it listens")).expect("a connection");
            client.send(half).expect("it reads");
            waiting.push((format!("{}: {half:?}", listener.name), client));
        }
        // Half a head after a complete request is the same.
        let mut guest = listener.guest().expect("a guest");
        guest.send(halves[1]).expect("it reads");
        waiting.push((format!("{}: half a head after a whole", listener.name), guest));
    }
    let mut wrong = Vec::new();
    for (what, mut client) in waiting {
        match client.receive("GET") {
            Ok(answer) if answer.status == 408 && answer.closes => {}
            other => wrong.push(format!("{what}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
