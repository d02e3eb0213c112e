//! What operators see of the root on the admin listener.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::client::Client;
use crate::place::{Place, Server};

fn asked(server: &Server, target: &str) -> (u16, Value) {
    let mut client = Client::connect(server.admin.expect("an admin listener"));
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let answer = client.receive(true).expect("an answer");
    let told: Value = serde_json::from_str(answer.text()).expect("JSON");
    if answer.status >= 400 {
        let id = answer.field("x-request-id");
        assert!(id.is_some() && told["request_id"].as_str() == id.as_deref(), "{target}: {told}");
    }
    (answer.status, told)
}

const FLAGS: [&str; 3] = ["--admin", "127.0.0.1:0", "--admin-browse"];

const RULES: &str = r#"
    [[rule]]
    path = "*"
    security = true
    [[rule]]
    path = "/pub/*"
    cache-control = "public, max-age=60"
    [[rule]]
    path = "/old"
    redirect = "/pub/a.css"
"#;

#[test]
fn nobody_browses_where_no_flag_has_it() {
    let place = Place::new();
    place.file("a", "a");
    let server = place.serve(&FLAGS[..2]);
    for target in ["/browse?path=/", "/answer?path=/a"] {
        assert_eq!(asked(&server, target).0, 404, "{target}");
    }
}

#[test]
fn a_directory_is_told_as_it_is_served() {
    let place = Place::new();
    place.file("pub/a.css", "a {}");
    place.file("pub/a.css.br", "coded");
    place.file("pub/<script>", "text");
    place.file(".hidden", "text");
    place.file("secret/deep/x", "text");
    fs::write(place.root("").join(std::ffi::OsStr::from_bytes(b"not-\xff-text")), "x").expect("a file");
    fs::write(place.beside("outside"), "secret").expect("a file");
    symlink(place.beside("outside"), place.root("leads-out")).expect("a link");
    symlink("pub/a.css", place.root("inside")).expect("a link");
    fs::write(place.beside("rules.toml"), RULES).expect("a file");
    let rules = place.beside("rules.toml");
    let server = place.serve(&[&FLAGS[..], &["--rules", rules.to_str().expect("text")]].concat());

    let (status, told) = asked(&server, "/browse?path=/");
    let all: Vec<_> = told["entries"].as_array().expect("entries").iter().collect();
    let seen: Vec<_> =
        all.iter().map(|entry| (entry["path"].as_str().unwrap(), entry["kind"].as_str().unwrap())).collect();
    assert_eq!((status, &told["next"]), (200, &Value::Null));
    assert_eq!(
        seen,
        [
            ("/inside", "file"),
            ("/leads-out", "other"),
            ("/not-%FF-text", "file"),
            ("/pub/", "directory"),
            ("/secret/", "directory")
        ]
    );
    assert_eq!((&all[0]["link"], &all[1]["link"]), (&true.into(), &true.into()));
    assert!(all[1]["why"].is_string() && all[1]["size"].is_null(), "{:?}", all[1]);

    let (_, told) = asked(&server, "/browse?path=/pub/");
    let css = &told["entries"][1];
    assert_eq!(
        (&css["path"], &css["size"], &css["codings"]),
        (&"/pub/a.css".into(), &4.into(), &serde_json::json!(["br"]))
    );
    assert_eq!(
        (&css["media_type"], &css["kept"]["page_cache"]),
        (&"text/css; charset=utf-8".into(), &true.into())
    );
    assert_eq!(css["rules"], serde_json::json!([1, 2]));
    assert_eq!(told["entries"][0]["name"], "<script>");

    let (status, told) = asked(&server, "/answer?path=/pub/a.css");
    let sent = server.get("/pub/a.css", "accept-encoding: br\r\n");
    for name in
        ["content-type", "content-encoding", "cache-control", "etag", "x-content-type-options", "vary"]
    {
        let fields = told["fields"].as_array().expect("fields");
        let field = fields
            .iter()
            .find(|field| field[0] == name)
            .map(|field| field[1].as_str().expect("text").to_owned());
        assert_eq!(field, sent.field(name), "{name}");
    }
    assert_eq!(
        (status, &told["status"], &told["sent"], &told["bytes"]),
        (200, &200.into(), &"/pub/a.css".into(), &5.into())
    );
    let rule = serde_json::json!({"rule": 2, "path": "/pub/*", "cache-control": "public, max-age=60"});
    assert_eq!(told["rules"][1], rule);
    let (_, told) = asked(&server, "/answer?path=/old");
    assert_eq!((&told["status"], &told["rules"][1]["redirect"]), (&301.into(), &"/pub/a.css".into()));
    assert_eq!(asked(&server, "/answer?path=/none").1["status"], 404);

    for (target, status) in [
        ("/browse?path=/../", 422),
        ("/browse?path=/.hidden/", 422),
        ("/browse?path=/none/", 404),
        ("/browse?path=/leads-out/", 404),
        ("/browse?path=/pub/a.css/", 404),
        ("/browse", 422),
        ("/answer?path=a", 422),
        ("/browse/", 404),
    ] {
        assert_eq!(asked(&server, target).0, status, "{target}");
    }
    let mut stranger = Client::connect(server.admin.expect("an admin listener"));
    stranger.send("GET /browse?path=/ HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(stranger.receive(true).expect("an answer").status, 403);
}

#[test]
fn a_directory_is_told_page_by_page() {
    let place = Place::new();
    // No client can ask for those with a control character, which end two of the pages.
    let ends = |number: &usize| [199, 399].contains(number);
    let name = |number| format!("f{number:03}&=+ %{}", if ends(&number) { "\n" } else { "" });
    (0..450).map(name).for_each(|name| drop(place.file(&name, &name)));
    let server = place.serve(&FLAGS);
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..3 {
        let (_, told) = asked(&server, &format!("/browse?path=/&after={after}"));
        seen.extend(
            told["entries"]
                .as_array()
                .expect("entries")
                .iter()
                .map(|entry| (entry["name"].as_str().expect("a name").to_owned(), entry["kind"] == "file")),
        );
        after = told["next"].as_str().unwrap_or_default().to_owned();
    }
    let all: Vec<_> = (0..450).map(|number| (name(number), !ends(&number))).collect();
    assert_eq!((seen, after), (all, String::new()));
    for (after, status) in [("x", 200), ("%0A", 200), ("a%2Fb", 422), ("a/b", 422), ("%00", 422)] {
        assert_eq!(asked(&server, &format!("/browse?path=/&after={after}")).0, status, "{after}");
    }
}
