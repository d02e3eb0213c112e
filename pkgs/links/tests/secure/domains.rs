//! Domains with TLS: `:authority` names a domain in the same way as `Host`.

use serde_json::json;

use crate::client::{Secure, Version, ask_one, curl_command, request};

#[test]
fn the_authority_tells_the_domain_by_every_version() {
    let secure = Secure::new();
    for host in ["localhost", "a.example"] {
        let added =
            secure.place.command(&["domain", "add", host, "--public-url", "https://go.example"]).unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    }
    let server = secure.serve(&["--public-url", "https://go.example"]);
    let mut api = server.api();
    for (domain, target) in [("default", "0"), ("localhost", "1"), ("a.example", "2")] {
        let link =
            json!({ "domain": domain, "code": "abc", "target": format!("https://t.example/{target}") });
        assert_eq!(api.add(&link).unwrap(), 201, "{domain}");
    }
    for version in Version::ALL {
        // All versions use the name localhost, and the version's port.
        for path in ["/abc", "/%61bc"] {
            let answer = ask_one(&server, version, request("GET", path, &[]));
            assert_eq!(answer.field("location"), Some("https://t.example/1"), "{version:?} {path}");
        }
    }
    for version in [Version::Plain, Version::Http1, Version::Http2] {
        for (host, target) in
            [("A.example", "2"), ("a.example:99", "2"), ("b.example", "0"), ("[::1]:80", "0")]
        {
            let mut command = curl_command(&server, version, &["/abc"]);
            command.args(["--output", "/dev/null", "--write-out", "%header{location}"]);
            let output = command.args(["--header", &format!("host: {host}")]).output().expect("curl runs");
            let told = String::from_utf8_lossy(&output.stdout);
            assert_eq!(told, format!("https://t.example/{target}"), "{version:?} {host}");
        }
    }
}
