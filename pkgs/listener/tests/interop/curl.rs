//! HTTP/1.1 and HTTP/2 with curl.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::server::Server;

/// The version for curl, and the scheme.
struct Way {
    name: &'static str,
    flags: &'static [&'static str],
    version: &'static str,
    secure: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "HTTP/1.1", flags: &["--http1.1"], version: "1.1", secure: false },
    Way { name: "HTTP/1.1 over TLS", flags: &["--http1.1"], version: "1.1", secure: true },
    Way { name: "HTTP/2 over TLS", flags: &["--http2"], version: "2", secure: true },
    Way { name: "h2c", flags: &["--http2-prior-knowledge"], version: "2", secure: false },
];

impl Way {
    /// What curl prints when it requests `path`, as text.
    fn ask(&self, server: &Server, path: &str, flags: &[&str], input: &[u8]) -> String {
        let (scheme, address) = match self.secure {
            true => ("https", server.secure),
            false => ("http", server.clear),
        };
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
            .arg(server.certificate.chain());
        curl.args(self.flags).args(flags).arg(format!("{scheme}://{address}{path}"));
        let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("curl runs");
        let mut pipe = curl.stdin.take().expect("it is piped");
        let input = input.to_vec();
        // curl may not read all of it, or any.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
        let output = curl.wait_with_output().expect("it is a child");
        writer.join().expect("no panic");
        assert!(output.status.success(), "{}: {path}: {}", self.name, output.status);
        String::from_utf8(output.stdout).expect("text")
    }
}

#[test]
fn requests_are_answered() {
    let server = Server::start(&["--body-bytes", "8388608"]);
    let body = "0123456789abcdef".repeat(3 << 16);
    for way in &WAYS {
        let ask = |path, flags: &[&str], input: &[u8]| way.ask(&server, path, flags, input);
        let name = way.name;
        let told = ask("/", &["--write-out", " %{http_version} %{response_code}"], b"");
        let version = way.version;
        assert_eq!(told, format!("Hello, World! {version} 200"), "{name}");
        let head = ask("/", &["--head"], b"").to_lowercase();
        assert!(head.contains("\ncontent-length: 13\r\n") && head.contains("\ndate: "), "{name}: {head}");
        let offered = format!("\nalt-svc: h3=\":{}\"", server.secure.port());
        assert_eq!(head.contains(&offered), way.secure, "{name}: {head}");
        let echo = ask("/echo", &["--data-binary", "@-"], body.as_bytes());
        assert!(echo == body, "{name}: {} bytes came back of {}", echo.len(), body.len());
        let unsized_echo = ask("/echo", &["--request", "POST", "--upload-file", "-"], body.as_bytes());
        assert!(unsized_echo == body, "{name}: {} bytes came back of {}", unsized_echo.len(), body.len());
        assert_eq!(ask("/bytes/20000000", &[], b"").len(), 20_000_000, "{name}");
        assert_eq!(ask("/drip/3/1", &[], b""), "drop\n".repeat(3), "{name}");
        let status = ["--output", "/dev/null", "--write-out", "%{response_code}"];
        assert_eq!(ask("/nowhere", &status, b""), "404", "{name}");
        // curl 7.88 loses an answer that arrives over HTTP/2 before the whole body is sent.
        if way.version == "1.1" {
            let too_long = [&status[..], &["--data-binary", "@-"]].concat();
            assert_eq!(ask("/read", &too_long, &vec![b'x'; 9 << 20]), "413", "{name}");
        }
        let too_many = format!("x-large: {}", "y".repeat(20_000));
        assert_eq!(ask("/", &[&status[..], &["--header", &too_many]].concat(), b""), "431", "{name}");
    }
}
