//! Each kind of address and each version of HTTP that the service supports.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Command;

use serde_json::Value;

use crate::place::{BINARY, Place, user};
use crate::tools;

/// An HTTP/3 client, which the tests of files use too.
const H3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../files/tests/serve/h3.py");

/// curl's result for a request: the version of HTTP, the status and the body.
fn curl(flags: &[&str], url: &str) -> (String, u16, Vec<u8>) {
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--max-time", "60"])
        .args(["--write-out", "%{stderr}%{http_version} %{http_code}"])
        .args(flags)
        .arg(url)
        .output()
        .expect("curl runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (version, status) = said.split_once(' ').unwrap_or_default();
    (version.to_owned(), status.parse().unwrap_or(0), output.stdout)
}

#[test]
fn every_kind_of_address_and_every_version_of_http_is_answered_alike() {
    let place = Place::new();
    let [cert, key] = testkit::certificate(&["localhost"]).write_in(place.path(""));
    // Passes the listener as sd_listen_fds(3) describes: descriptors from 3 on, and the id of the process.
    let passed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let script = format!(
        "exec 3<&{}; export LISTEN_FDS=1 LISTEN_FDNAMES=web LISTEN_PID=$$; exec \"$0\" \"$@\"",
        passed.as_raw_fd()
    );
    rustix::io::fcntl_setfd(&passed, rustix::io::FdFlags::empty()).expect("a descriptor");
    let mut command = Command::new("bash");
    command.args(["-c", &script, BINARY]);
    let socket = place.path("api.sock").display().to_string();
    let unix = format!("unix:{socket}");
    let flags = ["--listen", &unix, "--listen", "systemd:web", "--tls-listen", "127.0.0.1:0"];
    let server =
        place.serve_by(command, &[&flags[..], &["--cert", &cert, "--key", &key, "--auth", "none"]].concat());
    let activated = passed.local_addr().expect("an address");
    drop(passed);

    let plain = format!("http://{}", server.public);
    let activated = format!("http://{activated}");
    let port = server.secure.expect("a TLS listener").port();
    let secure = format!("https://127.0.0.1:{port}");
    let mut paths = Vec::new();
    for (number, (base, flags, version)) in [
        (plain.as_str(), &["--http1.1"][..], "1.1"),
        ("http://localhost", &["--unix-socket", &socket][..], "1.1"),
        (activated.as_str(), &["--http1.1"][..], "1.1"),
        (secure.as_str(), &["--http1.1"][..], "1.1"),
        (secure.as_str(), &["--http2"][..], "2"),
    ]
    .into_iter()
    .enumerate()
    {
        let sent = user(&format!("u{number}@example.org")).to_string();
        let post = ["--header", "content-type: application/json", "--data-binary", &sent];
        let (found, status, body) = curl(&[flags, &post].concat(), &format!("{base}/v1/users"));
        assert_eq!((found.as_str(), status), (version, 201), "{base} {flags:?}");
        let created: Value = serde_json::from_slice(&body).expect("a user");
        let path = format!("/v1/users/{}", created["id"].as_str().expect("an id"));
        // The first answer comes from the database, the second from the cache.
        for _ in 0..2 {
            let (found, status, read) = curl(flags, &format!("{base}{path}"));
            assert!(found == version && status == 200 && read == body, "{base} {flags:?}: {status}");
        }
        let (found, status, _) = curl(flags, &format!("{base}/v1/users/x"));
        assert_eq!((found.as_str(), status), (version, 404), "{base} {flags:?}");
        paths.push(path);
    }
    let output = Command::new(tools::aioquic())
        .args([H3, &port.to_string(), "get", "/v1/users?limit=1", "/v1/users/x"])
        .args(&paths)
        .output()
        .expect("Python runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let statuses = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(statuses.lines().collect::<Vec<_>>(), [&["200", "404"][..], &["200"; 5]].concat());
}

#[test]
fn without_keys_only_local_names_are_taken_by_http_2_and_unix_sockets_too() {
    let place = Place::new();
    let [cert, key] = testkit::certificate(&["localhost"]).write_in(place.path(""));
    let socket = place.path("api.sock").display().to_string();
    let unix = format!("unix:{socket}");
    let flags = ["--listen", &unix, "--tls-listen", "127.0.0.1:0", "--cert", &cert, "--key", &key];
    let server = place.serve(&flags);
    let secure = format!("https://127.0.0.1:{}/v1/users", server.secure.expect("a TLS listener").port());
    let by_socket = ["--unix-socket", &socket];
    for (flags, url, host, expected) in [
        (&["--http2"][..], secure.as_str(), None, 200),
        (&["--http2"], &secure, Some("Host: evil.example"), 403),
        (&["--http1.1"], &secure, Some("Host: evil.example"), 403),
        (&by_socket, "http://localhost/v1/users", None, 200),
        (&by_socket, "http://localhost/v1/users", Some("Host;"), 200),
        (&by_socket, "http://evil.example/v1/users", None, 403),
    ] {
        let header: Vec<&str> = host.iter().flat_map(|host| ["--header", *host]).collect();
        let (_, status, _) = curl(&[flags, &header].concat(), url);
        assert_eq!(status, expected, "{flags:?} {url} {host:?}");
    }
}

#[test]
fn each_host_has_its_certificate_and_operators_have_one_too() {
    let place = Place::new();
    let files = ["localhost", "b.example"].map(|name| {
        let files = ["cert", "key"].map(|kind| place.path(&format!("{name}.{kind}")));
        testkit::certificate(&[name]).write(&files[0], &files[1]);
        files.map(|file| file.display().to_string())
    });
    let [[first, first_key], [second, second_key]] = &files;
    let public = ["--cert", first, "--key", first_key, "--cert", second, "--key", second_key];
    let admin = ["--admin-cert", second, "--admin-key", second_key];
    let flags = [
        &["--tls-listen", "127.0.0.1:0", "--auth", "none", "--allowed-host", "b.example"],
        &public[..],
        &admin,
    ]
    .concat();
    let server = place.serve(&flags);
    let public = server.secure.expect("a TLS listener").port();
    let ask = |name: &str, port: u16, trusted: &str, path: &str| {
        let resolve = format!("{name}:{port}:127.0.0.1");
        let flags = ["--no-insecure", "--cacert", trusted, "--resolve", &resolve];
        let (_, status, body) = curl(&flags, &format!("https://{name}:{port}{path}"));
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    for (name, trusted, status) in [
        ("localhost", first, 200),
        ("b.example", second, 200),
        ("b.example", first, 0),
        ("c.example", first, 0),
    ] {
        assert_eq!(ask(name, public, trusted, "/v1/users").0, status, "{name} {trusted}");
    }
    let (status, metrics) = ask("b.example", server.admin.port(), second, "/metrics");
    assert_eq!(status, 200, "{metrics}");
    for (listener, name) in [("public", "localhost"), ("public", "b.example"), ("admin", "b.example")] {
        let series =
            format!("linerate_api_certificate_not_after_seconds{{listener=\"{listener}\",name=\"{name}\"}} ");
        assert!(metrics.lines().any(|line| line.starts_with(&series)), "{series} is not in\n{metrics}");
    }
}
