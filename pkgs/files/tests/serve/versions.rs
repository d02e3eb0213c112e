//! One request with each version of HTTP, plain and over TLS.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::client::Answer;
use crate::place::Server;
use crate::tools;

/// Whether a client for this version supports HEAD: aioquic expects a body of the announced length.
pub fn knows_head(version: &str) -> bool {
    version != "h3"
}

/// The versions of a request.
pub const ALL: [&str; 4] = ["plain", "--http1.1", "--http2", "h3"];

/// The answer to a GET with a version and these headers.
pub fn get(server: &Server, version: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    ask(server, version, "GET", target, fields)
}

/// The answer to a request with another method.
pub fn ask(server: &Server, version: &str, method: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    match version {
        "plain" => {
            let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let host = if fields.iter().any(|(name, _)| *name == "host") { "" } else { "host: h\r\n" };
            let mut client = server.connect();
            client.send(format!("{method} {target} HTTP/1.1\r\n{host}{lines}\r\n"));
            client.receive(method != "HEAD").unwrap_or_else(|error| panic!("{method} {target}: {error}"))
        }
        "h3" => by_h3(server, method, target, fields),
        _ => by_curl(server, version, method, target, fields),
    }
}

thread_local! {
    /// Clients by port, each with one HTTP/3 connection.
    static H3: RefCell<HashMap<u16, H3Client>> = RefCell::default();
}

struct H3Client {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl H3Client {
    fn start(port: u16) -> Self {
        let mut process = Command::new(tools::aioquic())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/h3.py"))
            .args([&port.to_string(), "ask"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, answers }
    }

    fn ask(&mut self, fields: &[(&str, &str)]) -> Answer {
        let line = serde_json::to_string(fields).expect("texts are JSON") + "\n";
        self.process.stdin.as_mut().expect("a pipe").write_all(line.as_bytes()).expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it writes");
        let answer: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{fields:?}: {error}: {line:?}"));
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let mut fields: Vec<(String, String)> = answer["fields"]
            .as_object()
            .expect("fields")
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        let status = fields.iter().position(|(name, _)| name == ":status").expect("a status");
        Answer {
            status: fields.remove(status).1.parse().expect("a status"),
            fields,
            body: BASE64_STANDARD.decode(text(&answer["body"])).expect("base64"),
        }
    }
}

impl Drop for H3Client {
    fn drop(&mut self) {
        // The client ends when its input does.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn by_h3(server: &Server, method: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    let port = server.secure.expect("a TLS listener").port();
    let mut all = vec![(":method", method), (":path", target)];
    all.extend(
        fields.iter().map(|(name, value)| (if *name == "host" { ":authority" } else { *name }, *value)),
    );
    H3.with_borrow_mut(|clients| clients.entry(port).or_insert_with(|| H3Client::start(port)).ask(&all))
}

fn by_curl(server: &Server, version: &str, method: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    let port = server.secure.expect("a TLS listener").port();
    let method = if method == "HEAD" { vec!["--head"] } else { vec!["--request", method] };
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--include", "--path-as-is", "--max-time", "120", version])
        .args(method)
        .args(fields.iter().flat_map(|(name, value)| ["--header".to_owned(), format!("{name}: {value}")]))
        .arg(format!("https://127.0.0.1:{port}{target}"))
        .output()
        .expect("curl runs");
    assert!(output.status.success(), "{version} {target}: {:?}", output.status);
    let end = output.stdout.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = std::str::from_utf8(&output.stdout[..end]).expect("a head of text");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let fields = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status,
        fields: fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
        body: output.stdout[end + 4..].to_vec(),
    }
}
