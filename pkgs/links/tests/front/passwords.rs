//! Links that ask for a password.

use links::link::LinkPatch;

use crate::http::Answer;
use crate::server::{Server, settings};

const PASSWORD: &str = "correct & horse";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

fn protected() -> Server {
    let server = Server::start(settings());
    server.link("abc", |link| link.password = Some(PASSWORD.to_owned()));
    server
}

fn post(server: &Server, path: &str, accept: &str, body: &str) -> Answer {
    server.connect().request("POST", path, &format!("{FORM}Accept: {accept}\r\n"), body).unwrap()
}

#[test]
fn a_protected_link_asks_first_and_counts_no_click() {
    let server = protected();
    let answer = server.connect().get("abc").unwrap();
    assert_eq!((answer.status, answer.value("cache-control")), (200, Some("no-store")));
    assert_eq!(answer.value("location"), None);
    assert!(answer.text().contains("<form method=post>"));
    assert!(!answer.text().contains("t.example"), "the target is a secret");
    server.assert_clicks("abc", 0);
}

#[test]
fn the_right_password_leads_on_by_get_and_counts() {
    let server = protected();
    let answer = post(&server, "/abc", "text/html", "password=correct+%26+horse");
    assert_eq!((answer.status, answer.location()), (303, "https://t.example/"));
    assert!(answer.value("cache-control").is_some_and(|value| value.contains("no-")));
    server.assert_clicks("abc", 1);
}

#[test]
fn a_wrong_password_is_403_and_the_sixth_try_within_a_minute_429() {
    let server = protected();
    for (accept, kind) in [
        ("text/html", "text/html; charset=utf-8"),
        ("*/*", "application/problem+json"),
        ("text/html", "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
    ] {
        let answer = post(&server, "/abc", accept, "password=wrong");
        assert_eq!((answer.status, answer.value("content-type")), (403, Some(kind)));
        assert_eq!(answer.value("location"), None);
    }
    let answer = post(&server, "/abc", "text/html", "password=correct+%26+horse");
    // An attempt becomes available every 12 seconds.
    let seconds = answer.value("retry-after").and_then(|seconds| seconds.parse().ok());
    assert!(
        answer.status == 429 && seconds.is_some_and(|seconds: u64| (1..=12).contains(&seconds)),
        "{seconds:?}"
    );
    assert_eq!(answer.value("location"), None);
    server.assert_clicks("abc", 0);
}

#[test]
fn the_old_password_opens_no_link_that_got_a_new_one_while_the_form_arrived() {
    let server = protected();
    let change = |password: &str| {
        let patch = LinkPatch { password: Some(Some(password.to_owned())), ..LinkPatch::default() };
        server.store().edit("abc".to_owned(), patch).wait().unwrap();
    };
    for (accept, kind) in
        [("text/html", "text/html; charset=utf-8"), ("application/json", "application/problem+json")]
    {
        let mut client = server.connect();
        let form = "password=correct+%26+horse";
        client
            .send(format!(
                "POST /abc HTTP/1.1\r\nHost: h\r\n{FORM}Accept: {accept}\r\nContent-Length: {}\r\n\
                 Expect: 100-continue\r\n\r\n",
                form.len()
            ))
            .unwrap();
        // By now the link was looked up.
        assert_eq!(client.receive().unwrap().status, 100);
        change("another");
        client.send(form).unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.value("content-type")), (403, Some(kind)));
        assert_eq!(answer.value("location"), None);
        change(PASSWORD);
    }
    server.assert_clicks("abc", 0);
}

#[test]
fn a_form_must_be_small_and_hold_a_password() {
    let server = protected();
    let long = format!("password={}", "x".repeat(2000));
    for (body, status) in [(&*long, 413), ("", 400), ("passwort=x", 400), ("password=", 403)] {
        assert_eq!(post(&server, "/abc", "*/*", body).status, status, "{body:.20}");
    }
    // The body is chunked, without a length by which it could be refused.
    let mut client = server.connect();
    client
        .send(format!(
            "POST /abc HTTP/1.1\r\nHost: h\r\n{FORM}Transfer-Encoding: chunked\r\n\r\n7d0\r\n{}\r\n0\r\n\r\n",
            "x".repeat(2000)
        ))
        .unwrap();
    assert_eq!(client.receive().unwrap().status, 413);
}

#[test]
fn only_a_protected_link_takes_a_post() {
    let server = protected();
    server.link("plain", |_| ());
    server.link("past", |link| link.expires_at = Some(links::when::Timestamp(1)));
    for (path, status) in
        [("/plain", 405), ("/unknown", 404), ("/past", 410), ("/robots.txt", 405), ("/", 405)]
    {
        let answer = post(&server, path, "*/*", "password=x");
        assert_eq!(answer.status, status, "{path}");
        let allow = (status == 405).then_some("GET, HEAD");
        assert_eq!(answer.value("allow"), allow, "{path}");
    }
}

#[test]
fn a_query_survives_the_password() {
    let server = Server::start(settings());
    server.link("abc", |link| {
        link.password = Some(PASSWORD.to_owned());
        link.forward_query = true;
    });
    let answer = post(&server, "/abc?a=1", "*/*", "password=correct+%26+horse");
    assert_eq!((answer.status, answer.location()), (303, "https://t.example/?a=1"));
}
