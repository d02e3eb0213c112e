//! Health and metrics, and the host names for which they are served.

use service::allowed_hosts::AllowedHosts;
use ureq::SendBody;

use crate::server::{Reply, Server};

#[test]
fn readiness_is_told_with_its_reason() {
    let server = Server::start();
    let ask = |path| server.send("GET", path, &[], SendBody::none());
    assert_eq!((ask("/healthz").status, ask("/readyz").status), (200, 200));
    assert_eq!(
        (ask("/healthz").text(), ask("/readyz").text()),
        (r#"{"status":"ok"}"#.into(), r#"{"status":"ready"}"#.into())
    );
    assert_eq!(ask("/healthz").header("cache-control"), "no-store");
    server.readiness.set_not_ready("the disk is full");
    assert_eq!(ask("/healthz").status, 200);
    let (refused, id) = (ask("/readyz"), |reply: &Reply| reply.header("x-request-id").to_owned());
    assert_eq!(refused.problem(503)["detail"], "not ready: the disk is full");
    assert_eq!(refused.problem(503)["request_id"], id(&refused));
    server.readiness.set_ready();
    assert_eq!(ask("/readyz").status, 200);
}

#[test]
fn requests_are_counted_by_route_and_status() {
    let server = Server::start();
    server.create("a");
    server.get("/api/v1/links/a");
    server.get("/api/v1/links/b");
    server.get("/made/up/1");
    server.get("/made/up/2");
    server.send("PUT", "/api/v1/links/a", &[], SendBody::none());
    for (method, path) in [("HEAD", "/healthz"), ("POST", "/healthz"), ("GET", "/api/v1/")] {
        server.send(method, path, &[], SendBody::none());
    }
    let reply = server.send("GET", "/metrics", &[], SendBody::none());
    assert!(reply.header("content-type").starts_with("application/openmetrics-text"));
    let text = reply.text();
    for line in [
        r#"{method="POST",route="/api/v1/links",status="201"} 1"#,
        r#"{method="GET",route="/api/v1/links/{code}",status="200"} 1"#,
        r#"{method="GET",route="/api/v1/links/{code}",status="404"} 1"#,
        r#"{method="GET",route="unknown",status="404"} 2"#,
        r#"{method="other",route="/api/v1/links/{code}",status="405"} 1"#,
        r#"{method="HEAD",route="/healthz",status="200"} 1"#,
        r#"{method="POST",route="/healthz",status="405"} 1"#,
        r#"{method="GET",route="/api/v1/",status="200"} 1"#,
    ] {
        assert!(text.contains(&format!("linerate_links_admin_requests_total{line}")), "{line} not in {text}");
    }
}

#[test]
fn without_a_key_only_local_names_are_answered() {
    let server = Server::start_with(|state| state.only_for(AllowedHosts::default()));
    let bearer = format!("Bearer {}", server.read);
    for (host, origin, key, status) in [
        ("localhost:8081", None, false, 200),
        ("127.0.0.1", None, false, 200),
        ("localhost", Some("http://localhost:3000"), false, 200),
        ("evil.example", None, false, 403),
        ("evil.example", None, true, 403),
        ("localhost", Some("https://evil.example"), false, 403),
        ("127.0.0.1.evil.example", None, false, 403),
    ] {
        let mut headers = vec![("host", host)];
        headers.extend(origin.map(|origin| ("origin", origin)));
        if key {
            headers.push(("authorization", &bearer));
        }
        for path in ["/metrics", "/healthz", "/"] {
            let reply = server.send("GET", path, &headers, SendBody::none());
            assert_eq!(reply.status, status, "{host} {origin:?} {path}");
            if status == 403 {
                assert_eq!(reply.problem(403)["request_id"], reply.header("x-request-id"), "{host} {path}");
            }
        }
    }
    // A path that checks keys needs no check of the host, since a web page cannot send a valid key. An invented key
    // doesn't help.
    for (key, status) in [(&*bearer, 200), ("Bearer lr_unknown", 401)] {
        let headers = [("host", "evil.example"), ("authorization", key)];
        let reply = server.send("GET", "/api/v1/links", &headers, SendBody::none());
        assert_eq!(reply.status, status, "{key}");
    }
}
