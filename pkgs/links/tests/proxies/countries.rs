//! Clicks by country, from the addresses that a trusted proxy passes on.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{mmdb, until};

use crate::TRUSTED;
use crate::http::Client;
use crate::server::{BINARY, Place, Server};

/// Addresses reserved for documentation (RFC 5737, RFC 3849), and their countries in this test.
const NETWORKS: [(&str, u32, &str); 4] = [
    ("192.0.2.0", 24, "DE"),
    ("198.51.100.0", 25, "FR"),
    ("203.0.113.0", 24, "no"),
    ("2001:db8::", 32, "JP"),
];

#[test]
fn clicks_count_for_the_country_of_the_address_that_a_trusted_proxy_tells() {
    let place = Place::new();
    let file = place.database.with_file_name("countries.mmdb");
    fs::write(&file, mmdb("Test-Country", &NETWORKS)).expect("it is written");
    let file = file.to_str().expect("text");
    let stats = |flags: &[&str]| -> Value {
        let output = place.command(&[&["stats", "--json"], flags].concat()).expect("it runs");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let visits = [
        ("192.0.2.1", "/abc"),
        ("192.0.2.200", "/abc"),
        // This one is not answered on the fast path.
        ("192.0.2.1", "/%61bc"),
        ("2001:db8::7", "/abc"),
        ("::ffff:198.51.100.9", "/abc"),
        // An address without a country, one with an invalid country, and an unknown address.
        ("198.51.100.200", "/abc"),
        ("203.0.113.1", "/abc"),
        ("unknown", "/abc"),
    ];
    let visit = |server: &Server| {
        let mut client = Client::connect(server.public).expect("it listens");
        for (address, path) in visits {
            let fields = format!("X-Forwarded-For: 10.9.8.7, {address}\r\n");
            let answer = client.request("GET", path, &fields, "").expect("an answer");
            assert_eq!(answer.status, 307, "{address} {path}");
        }
        // A HEAD isn't a click.
        let head = "HEAD /abc HTTP/1.1\r\nHost: s.example\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
        client.send(head).expect("it is open");
        assert_eq!(client.receive_head().expect("an answer").status, 307);
    };
    let server = place.serve(&[&TRUSTED[..], &["--geoip", file]].concat());
    assert_eq!(server.api().create("abc", "https://t.example/").expect("an answer"), 201);
    visit(&server);
    until("they are stored", || stats(&["abc"])["clicks"] == 8);
    let count = |name: &str, clicks: u64| json!({ "name": name, "clicks": clicks });
    let expected = json!([count("", 3), count("DE", 3), count("FR", 1), count("JP", 1)]);
    assert_eq!(stats(&["abc"])["countries"], expected);
    assert_eq!(stats(&[])["countries"], expected, "of all links too");
    let said = place.command(&["stats", "abc"]).expect("it runs");
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(said.contains("COUNTRY") && said.lines().any(|line| line.contains("DE")), "{said}");
    server.stop();

    // The header isn't trusted from a client that isn't a proxy, and without a file no country is looked up.
    let expected = json!([count("", 11), count("DE", 3), count("FR", 1), count("JP", 1)]);
    for (flags, clicks) in [(&["--geoip", file][..], 16), (&TRUSTED[..], 24)] {
        let server = place.serve(flags);
        visit(&server);
        until("they are stored", || stats(&["abc"])["clicks"] == clicks);
        assert_eq!(stats(&["abc"])["countries"], expected, "{flags:?}");
        server.stop();
    }
}

#[test]
fn a_file_that_tells_no_countries_is_refused_in_one_line() {
    let place = Place::new();
    let at = |name: &str| place.database.with_file_name(name);
    fs::write(at("text"), "no database").expect("it is written");
    fs::write(at("asn"), mmdb("Test-ASN", &[("192.0.2.0", 24, "")])).expect("it is written");
    fs::write(at("empty"), mmdb("Test-Empty", &[])).expect("it is written");
    let whole = mmdb("Test-Country", &NETWORKS);
    fs::write(at("cut"), &whole[..whole.len() - 60]).expect("it is written");
    for (name, why) in [
        ("none", "No such file or directory"),
        ("text", "is no MaxMind DB that can be read"),
        ("cut", "is no MaxMind DB that can be read"),
        ("asn", "is a MaxMind DB of Test-ASN, which tells no countries"),
        ("empty", "is a MaxMind DB of Test-Empty, which tells no countries"),
    ] {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database"]);
        command.arg(&place.database).arg("--geoip").arg(at(name));
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why) && said.contains(name), "{name}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(!place.database.exists(), "nothing is made");
    }
}
