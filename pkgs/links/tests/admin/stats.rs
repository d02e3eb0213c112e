//! Clicks and QR codes.

use links::agent::Agent;
use links::store::{Click, ClickBatch};
use serde_json::json;

use crate::server::Server;

#[test]
fn clicks_are_summed_over_the_days_asked_for() {
    let server = Server::start();
    server.create("a");
    server.create("b");
    let reader = server.store.reader().unwrap();
    let (a, b) = (reader.get("a").unwrap().id, reader.get("b").unwrap().id);
    let click = |link, day, referrer, agent, count| Click { link, hour: 24 * day, referrer, agent, count };
    // Day 20,000 is 2024-10-04.
    let batch = ClickBatch {
        referrers: vec![String::new(), "news.example".to_owned()],
        clicks: vec![
            click(a, 20_000, 1, Agent::Firefox, 2),
            click(a, 20_001, 0, Agent::Bot, 1),
            click(b, 20_000, 0, Agent::Tool, 5),
        ],
        ..ClickBatch::default()
    };
    server.store.count(batch.into()).wait().unwrap();
    let clicks = |path: &str| server.get(path).json()["clicks"].clone();
    assert_eq!(clicks("/api/v1/links/a/stats?from=2024-10-04&to=2024-10-05"), 3);
    assert_eq!(clicks("/api/v1/links/a/stats?from=2024-10-05&to=2024-10-05"), 1);
    assert_eq!(clicks("/api/v1/links/a/stats?to=2024-10-04"), 2);
    assert_eq!(clicks("/api/v1/links/a/stats"), 0);
    assert_eq!(clicks("/api/v1/stats?from=2024-10-04&to=2024-10-04"), 7);
    let stats = server.get("/api/v1/links/a/stats?from=2024-10-04&to=2024-10-05").json();
    assert_eq!(
        stats["days"],
        json!([{"name": "2024-10-04", "clicks": 2, "bots": 0}, {"name": "2024-10-05", "clicks": 1, "bots": 1}])
    );
    assert_eq!(stats.get("hours"), None, "only where they are asked for");
    let stats = server.get("/api/v1/links/a/stats?from=2024-10-04&to=2024-10-05&hours=true").json();
    assert_eq!(
        stats["hours"],
        json!([{"name": "2024-10-04T00", "clicks": 2, "bots": 0}, {"name": "2024-10-05T00", "clicks": 1, "bots": 1}])
    );
    let stats = server.get("/api/v1/stats?from=2024-10-04&to=2024-10-04&hours=true").json();
    assert_eq!(stats["hours"], json!([{"name": "2024-10-04T00", "clicks": 7, "bots": 0}]));
    server.get("/api/v1/links/none/stats").problem(404);
    for query in ["from=2024-10-05&to=2024-10-04", "from=yesterday", "to=2024-13-01", "since=2024-10-04"] {
        server.get(&format!("/api/v1/stats?{query}")).problem(400);
    }
}

#[test]
fn a_qr_code_is_drawn_as_asked_and_revalidated() {
    let server = Server::start();
    server.create("a");
    let svg = server.get("/api/v1/links/a/qr");
    assert_eq!((svg.status, svg.header("content-type")), (200, "image/svg+xml"));
    assert!(svg.text().starts_with("<svg xmlns=") && svg.text().contains("width=\"256\""));
    let again = server.ask("GET", "/api/v1/links/a/qr", &[("if-none-match", svg.header("etag"))], "");
    assert_eq!((again.status, again.body.len()), (304, 0));
    let png = server.get("/api/v1/links/a/qr?format=png&size=300&margin=2");
    assert_eq!(png.header("content-type"), "image/png");
    assert_eq!(&png.body[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(png.body[16..24], [0, 0, 1, 44, 0, 0, 1, 44]);
    assert_ne!(png.header("etag"), svg.header("etag"));
    let compressed =
        server.ask("GET", "/api/v1/links/a/qr?format=png&size=2000", &[("accept-encoding", "gzip")], "");
    assert_eq!(compressed.header("content-encoding"), "");
    server.get("/api/v1/links/none/qr").problem(404);
    for query in ["size=15", "size=5000", "margin=17", "format=gif", "format=png&size=16"] {
        server.get(&format!("/api/v1/links/a/qr?{query}")).problem(400);
    }
}
