//! Several sites in one process, by host.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::place::{BINARY, Place, Server, settle, until};
use crate::routes::rules;
use crate::secure::secure;
use crate::versions::{self, ALL};

const RULES: &str = r#"
[[rule]]
path = "*"
headers = { x-site = "first" }

[[site]]
hosts = ["a.example", "A2.example"]
root = "site-a"
listing = true
[site.error-pages]
404 = "404.html"
[[site.rule]]
path = "*"
headers = { x-site = "a" }
[[site.rule]]
path = "/app/*"
fallback = "/same"

[[site]]
hosts = ["*.b.example", "[::1]"]
root = "site-b"
"#;

/// A place with three roots, each with a file of the same name.
fn place() -> Place {
    let place = Place::new();
    for (root, text) in [("root", "first"), ("site-a", "of a"), ("site-b", "of b")] {
        fs::create_dir_all(place.beside(root)).unwrap();
        fs::write(place.beside(root).join("same"), text).unwrap();
        fs::write(place.beside(root).join(format!("only-{root}")), "x").unwrap();
        settle(&place.beside(root).join("same"));
    }
    fs::write(place.beside("site-a/404.html"), "lost in a").unwrap();
    fs::create_dir(place.beside("site-a/list")).unwrap();
    fs::create_dir(place.beside("root/list")).unwrap();
    place
}

fn serve(place: &Place, text: &str) -> Server {
    let flags = rules(place, text);
    secure(place, &flags.each_ref().map(String::as_str))
}

#[test]
fn a_request_is_about_the_site_of_its_host() {
    let place = place();
    let server = serve(&place, RULES);
    // Often enough for all of them to be hot.
    for _ in 0..3 {
        for version in ALL {
            for (host, text, named) in [
                ("a.example", "of a", Some("a")),
                ("A.Example:8443", "of a", Some("a")),
                ("a2.example.", "of a", Some("a")),
                ("x.b.example", "of b", None),
                ("x.y.b.example:1", "of b", None),
                ("[::1]:80", "of b", None),
                ("b.example", "first", Some("first")),
                ("other.example", "first", Some("first")),
                ("a.example.evil.example", "first", Some("first")),
            ] {
                let answer = versions::get(&server, version, "/same", &[("host", host)]);
                assert_eq!(
                    (answer.status, answer.text(), answer.field("x-site").as_deref()),
                    (200, text, named),
                    "{version} {host}"
                );
            }
            for (host, target, status, text) in [
                ("a.example", "/only-site-b", 404, "lost in a"),
                ("x.b.example", "/only-site-a", 404, ""),
                ("x.b.example", "/../site-a/same", 400, ""),
                ("a.example", "/list/", 200, ""),
                ("other.example", "/list/", 404, ""),
                ("a.example", "/app/any", 200, "of a"),
                ("x.b.example", "/app/any", 404, ""),
                ("a.example", "/list", 301, ""),
            ] {
                let answer = versions::get(&server, version, target, &[("host", host)]);
                assert_eq!(answer.status, status, "{version} {host} {target}");
                assert!(text.is_empty() || answer.text() == text, "{version} {host} {target}");
            }
        }
    }
    // The target's own host takes precedence over the header, and a pipeline may use several hosts.
    let mut client = server.connect();
    let ask = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for _ in 0..40 {
        client.send(
            [
                ask("http://a.example/same", "x.b.example"),
                ask("/same", "x.b.example"),
                ask("/same", "a.example"),
                ask("/same", "h"),
            ]
            .concat(),
        );
        for text in ["of a", "of b", "of a", "first"] {
            assert_eq!(client.receive(true).unwrap().text(), text);
        }
    }
    // Each is looked up again when it changes.
    fs::write(place.beside("next"), "new of b").unwrap();
    fs::rename(place.beside("next"), place.beside("site-b/same")).unwrap();
    let ask = |host| {
        versions::get(&server, "plain", "/same", &[]).text().len() + {
            let mut client = server.connect();
            client.send(format!("GET /same HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.receive(true).unwrap().text().len()
        }
    };
    for _ in 0..8 {
        until("the change", || ask("x.b.example") == "first".len() + "new of b".len());
    }
    assert_eq!(ask("a.example"), "first".len() + "of a".len());
}

#[test]
fn hosts_of_nobody_are_refused_where_rules_say_so() {
    let place = place();
    let server = serve(&place, &format!("unknown-hosts = 'refuse'\n{RULES}"));
    for version in ALL {
        for (host, status) in [("a.example", 200), ("other.example", 421), ("b.example", 421)] {
            let answer = versions::get(&server, version, "/same", &[("host", host)]);
            assert_eq!(answer.status, status, "{version} {host}");
        }
    }
    let mut client = server.connect();
    client.send("GET /same HTTP/1.0\r\n\r\n");
    assert_eq!(client.receive_head().unwrap().status, 421);
}

/// Makes a certificate for a name, and returns the flags with its path and its key's.
fn certificate(place: &Place, name: &str) -> [String; 2] {
    let files = [format!("{name}.pem"), format!("{name}.key")];
    testkit::certificate(&[name]).write(place.beside(&files[0]), place.beside(&files[1]));
    files
}

/// The body that curl gets from a host with this certificate; none if it has another one.
fn trusted(server: &Server, place: &Place, name: &str) -> Option<String> {
    let port = server.secure.expect("a TLS listener").port();
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "120", "--cacert"])
        .arg(place.beside(&format!("{name}.pem")))
        .args(["--resolve", &format!("{name}:{port}:127.0.0.1"), &format!("https://{name}:{port}/same")])
        .output()
        .expect("curl runs");
    output.status.success().then(|| String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn sites_have_certificates_and_are_read_again_whole_or_not() {
    let place = place();
    let [cert, key] = certificate(&place, "a.example");
    let site = |host: &str, [cert, key]: &[String; 2], root: &str| {
        format!("[[site]]\nhosts = ['{host}']\nroot = '{root}'\ncert = '{cert}'\ncert-key = '{key}'\n")
    };
    let one = site("a.example", &[cert, key], "site-a");
    let server = serve(&place, &one);
    assert_eq!(trusted(&server, &place, "a.example").as_deref(), Some("of a"));
    let new = certificate(&place, "b.example");
    let two = one.clone() + &site("b.example", &new, "site-b");
    rules(&place, &two);
    server.signal(Signal::HUP);
    // Often enough to be answered by every worker.
    let serves = || (0..20).all(|_| trusted(&server, &place, "b.example").as_deref() == Some("of b"));
    until("the new site", serves);
    assert_eq!(trusted(&server, &place, "a.example").as_deref(), Some("of a"));
    for (bad, said) in [
        (site("c.example", &["no.pem".to_owned(), new[1].clone()], "site-b"), "no.pem"),
        (site("c.example", &new, "nowhere"), "nowhere"),
        ("[[site]]\nhosts = []\nroot = 'site-a'".to_owned(), "a site has no hosts"),
        ("[[site]]\nhosts = ['x', 'X']\nroot = 'site-a'".to_owned(), "there are two of this name"),
        ("[[site]]\nhosts = ['x/y']\nroot = 'site-a'".to_owned(), "no name of a host"),
        ("[[site]]\nhosts = ['x']\nroot = 'site-a'\ncert = 'x'".to_owned(), "cert and cert-key go together"),
        (
            "[[site]]\nhosts = ['x']\nroot = 'site-a'\n[[site.rule]]\npath = '/a'\nrewrite = 'b'".to_owned(),
            "is no path",
        ),
    ] {
        rules(&place, &bad);
        let before = server.log().matches("stay as they were").count();
        server.signal(Signal::HUP);
        until("an error", || server.log().matches("stay as they were").count() > before);
        assert!(server.log().contains(said), "{said}: {}", server.log());
        assert_eq!(trusted(&server, &place, "b.example").as_deref(), Some("of b"), "{bad}");
        let output = Command::new(BINARY)
            .current_dir(place.beside(""))
            .args(["serve", "--listen", "127.0.0.1:0", "--rules", "rules.toml"])
            .args(["--tls-listen", "127.0.0.1:0", "--cert", "cert.pem", "--key", "key.pem"])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    }
}
