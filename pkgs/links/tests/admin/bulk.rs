//! Import and export.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use ureq::SendBody;

use crate::server::Server;

const CSV: [(&str, &str); 1] = [("content-type", "text/csv")];

#[test]
fn what_is_exported_imports_the_same_elsewhere() {
    let (here, there) = (Server::start(), Server::start());
    here.post("/api/v1/links", r#"{"target":"https://example.com/?a=\"b,c\"","code":"full","title":"=1+1","tags":["x","y"],
        "redirect":308,"forward_query":true,"status":"disabled","password":"secret","expires_at":"2040-01-01T00:00:00Z","max_clicks":5}"#);
    here.create("plain");
    for (format, media_type) in [("csv", "text/csv"), ("json", "application/json")] {
        let path = format!("/api/v1/links/export?format={format}&hashes=true");
        let exported = here.get(&path);
        assert!(exported.header("content-type").starts_with(media_type));
        assert!(exported.header("content-disposition").contains(&format!("links.{format}")));
        let imported = there.ask(
            "POST",
            "/api/v1/links/import?on_conflict=replace",
            &[("content-type", media_type)],
            &exported.text(),
        );
        assert_eq!(imported.status, 200, "{}", imported.text());
        let tally = imported.json();
        assert_eq!(tally["created"].as_u64().unwrap() + tally["replaced"].as_u64().unwrap(), 2, "{tally}");
        assert_eq!(there.get(&path).text(), exported.text());
        assert_eq!(there.get("/api/v1/links/full").json()["protected"], true);
    }
}

#[test]
fn hashes_are_only_for_tokens_that_may_write() {
    let server = Server::start();
    server.post("/api/v1/links", r#"{"target":"https://example.com/","code":"a","password":"secret"}"#);
    let read = format!("Bearer {}", server.read);
    let ask = |path| server.send("GET", path, &[("authorization", &read)], SendBody::none());
    ask("/api/v1/links/export?format=json&hashes=true").problem(403);
    let plain = ask("/api/v1/links/export?format=json");
    assert_eq!((plain.status, plain.text().contains("argon2")), (200, false));
    assert!(server.get("/api/v1/links/export?format=json&hashes=true").text().contains("argon2"));
    ask("/api/v1/links/export").problem(400);
    ask("/api/v1/links/export?format=xml").problem(400);
}

#[test]
fn refused_rows_are_counted_and_numbered_as_in_the_file() {
    let server = Server::start();
    server.create("taken");
    let file = "code,target\na,https://example.com/\nb,nowhere\ntaken,https://example.org/\nc,x,y\nd,https://example.com/d\n";
    let numbers = |tally: &serde_json::Value| {
        tally["errors"].as_array().unwrap().iter().map(|error| error[0].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let tally = server.ask("POST", "/api/v1/links/import", &CSV, file).json();
    assert_eq!((&tally["created"], &tally["failed"]), (&json!(2), &json!(3)), "{tally}");
    assert_eq!(numbers(&tally), [2, 3, 4]);
    let tally = server.ask("POST", "/api/v1/links/import?on_conflict=skip", &CSV, file).json();
    assert_eq!((&tally["skipped"], &tally["failed"]), (&json!(3), &json!(2)), "{tally}");
    assert_eq!(server.get("/api/v1/links/taken").json()["target"], "https://example.com/taken");
    let tally = server.ask("POST", "/api/v1/links/import?on_conflict=replace", &CSV, file).json();
    assert_eq!((&tally["replaced"], &tally["failed"]), (&json!(3), &json!(2)), "{tally}");
    assert_eq!(server.get("/api/v1/links/taken").json()["target"], "https://example.org/");
}

#[test]
fn an_import_that_cannot_be_read_on_says_how_far_it_came() {
    let server = Server::start();
    let lines = "{\"target\":\"https://example.com/\",\"code\":\"a\"}\n[";
    let reply =
        server.ask("POST", "/api/v1/links/import", &[("content-type", "application/x-ndjson")], lines);
    let problem = reply.problem(400);
    assert_eq!(problem["tally"]["created"], 1, "{problem}");
    assert!(problem["request_id"].is_string(), "{problem}");
    assert_eq!(server.get("/api/v1/links/a").status, 200);
    for (headers, path, status) in [
        (("content-type", "text/plain"), "/api/v1/links/import", 415),
        (("content-type", "text/csv"), "/api/v1/links/import?format=json", 400),
        (("content-type", "text/csv"), "/api/v1/links/import?on_conflict=ask", 400),
        (("content-type", "text/csv"), "/api/v1/links/import", 400),
    ] {
        server.ask("POST", path, &[headers], "colour\nred\n").problem(status);
    }
}

#[test]
fn a_row_cut_off_by_a_client_that_goes_away_is_not_imported() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(
        stream,
        "POST /api/v1/links/import HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: text/csv\r\n\
         content-length: 1000\r\n\r\ncode,target\nwhole,https://example.com/whole\nhalf,https://example.com/ha",
        server.write
    )
    .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    drop(stream);
    let reader = server.store.reader().unwrap();
    // The earlier rows are stored once the server notices that the client has left.
    let found = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        reader.get("whole").is_ok()
    });
    assert!(found);
    std::thread::sleep(Duration::from_millis(200));
    assert!(reader.get("half").is_err());
}

#[test]
fn an_export_is_whole_while_links_are_written() {
    let server = Server::start();
    let rows: String =
        (0..20_000).map(|number| format!("r{number},https://example.com/{number}\n")).collect();
    let imported = server.ask("POST", "/api/v1/links/import", &CSV, &format!("code,target\n{rows}"));
    assert_eq!(imported.json()["created"], 20_000);
    let writing = std::sync::atomic::AtomicBool::new(true);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            loop {
                server.create(&format!("w{written}"));
                written += 1;
                if !writing.load(std::sync::atomic::Ordering::Relaxed) {
                    break written;
                }
            }
        });
        let exported = server.get("/api/v1/links/export?format=json").json();
        writing.store(false, std::sync::atomic::Ordering::Relaxed);
        let codes: std::collections::HashSet<_> =
            exported.as_array().unwrap().iter().map(|link| link["code"].as_str().unwrap()).collect();
        assert_eq!(codes.len(), exported.as_array().unwrap().len());
        assert!((0..20_000).all(|number| codes.contains(format!("r{number}").as_str())));
        writer.join().unwrap()
    });
    println!("{written} written meanwhile");
}

#[test]
fn an_export_stops_when_its_client_goes() {
    let server = Server::start();
    let rows: String =
        (0..50_000).map(|number| format!("https://example.com/{number}/{}\n", "x".repeat(100))).collect();
    assert_eq!(server.ask("POST", "/api/v1/links/import", &CSV, &format!("target\n{rows}")).status, 200);
    // Start as many exports as may run at once, and leave them hanging. Then another one must still get its turn.
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(
            stream,
            "GET /api/v1/links/export?format=json HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\r\n",
            server.read
        )
        .unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
    }
    let answered = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        server.get("/api/v1/links/export?format=csv").status == 200
    });
    assert!(answered);
}

#[test]
fn a_third_transfer_is_told_to_come_back() {
    let server = Server::start();
    let open: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            write!(
                stream,
                "POST /api/v1/links/import HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\
                 content-type: text/csv\r\ncontent-length: 1000\r\n\r\ntarget\n",
                server.write
            )
            .unwrap();
            stream
        })
        .collect();
    // The third is refused as soon as the server has seen both others.
    let refused = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        Some(server.get("/api/v1/links/export?format=csv")).filter(|reply| reply.status != 200)
    });
    let reply = refused.expect("two are all there may be");
    reply.problem(503);
    assert_eq!(reply.header("retry-after"), "1");
    drop(open);
}
