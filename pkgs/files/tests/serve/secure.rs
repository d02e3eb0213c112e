//! The same files by HTTP/1.1, HTTP/2 and HTTP/3 over TLS.

use std::fs;
use std::process::Command;

use crate::place::{Place, Server, pattern};
use crate::tools;

const SIZES: [usize; 5] = [0, 1, 65_536, 65_537, 3_000_001];

fn serve(place: &Place) -> Server {
    for size in SIZES {
        place.file(&format!("f{size}"), pattern(size));
    }
    place.file("a.js", "plain");
    place.file("a.js.gz", "coded");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (place.beside("cert.pem"), place.beside("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    place.serve(&[
        "--tls-listen",
        "127.0.0.1:0",
        "--cert",
        cert.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
        "--listing",
    ])
}

fn curl(server: &Server, path: &str, flags: &[&str]) -> (u16, Vec<u8>) {
    let port = server.secure.expect("a TLS listener").port();
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--max-time", "20", "--write-out", "%{stderr}%{http_code}"])
        .args(flags)
        .arg(format!("https://127.0.0.1:{port}{path}"))
        .output()
        .expect("curl runs");
    let status = String::from_utf8_lossy(&output.stderr).trim().parse().unwrap_or(0);
    (status, output.stdout)
}

#[test]
fn answers_are_those_of_the_plain_listener() {
    let place = Place::new();
    let server = serve(&place);
    for version in ["--http1.1", "--http2"] {
        for size in SIZES {
            let (status, body) = curl(&server, &format!("/f{size}"), &[version]);
            assert!(
                status == 200 && body == pattern(size),
                "{version} {size}: {status}, {} bytes",
                body.len()
            );
        }
        let all = pattern(3_000_001);
        for (flags, status, body) in [
            (&["-r", "1000000-2000000"][..], 206, &all[1_000_000..=2_000_000]),
            (&["-r", "-5"], 206, &all[2_999_996..]),
            (&["-r", "3000001-"], 416, &[]),
            (&["--head"], 200, &[]),
        ] {
            let (found, received) = curl(&server, "/f3000001", &[flags, &[version]].concat());
            assert_eq!(found, status, "{version} {flags:?}");
            assert!(body.is_empty() || received == body, "{version} {flags:?}");
        }
        let (status, parts) = curl(&server, "/f3000001", &["-r", "0-9,100-109", version]);
        assert!(status == 206 && parts.windows(10).any(|window| window == &all[100..110]), "{version}");
        assert_eq!(
            curl(&server, "/a.js", &["-H", "accept-encoding: gzip", version]),
            (200, b"coded".to_vec())
        );
        assert_eq!(curl(&server, "/missing", &[version]).0, 404);
        assert_eq!(curl(&server, "/%2e%2e/cert.pem", &["--path-as-is", version]).0, 400);
        let (status, listing) = curl(&server, "/?format=json", &[version]);
        let listing: serde_json::Value = serde_json::from_slice(&listing).expect("JSON");
        assert_eq!((status, listing.as_array().map(Vec::len)), (200, Some(SIZES.len() + 2)), "{version}");
    }
}

#[test]
fn http_3_answers_whole_files_and_ranges() {
    let place = Place::new();
    let server = serve(&place);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/h3.py");
    let output = Command::new(tools::python())
        .arg(script)
        .arg(server.secure.expect("a TLS listener").port().to_string())
        .arg(place.root(""))
        .output()
        .expect("Python runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
