//! A server with a certificate, and clients for each version of HTTP.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::server::{Place, Server};
use crate::tools;

/// The versions that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/1.1 over TLS.
    Http1,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Version {
    pub const ALL: [Self; 4] = [Self::Plain, Self::Http1, Self::Http2, Self::Http3];
    pub const SECURE: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    /// Lines such as `accept: text/html`.
    pub fields: Vec<&'static str>,
    pub body: String,
}

/// A request without a body.
pub fn request(method: &'static str, path: &str, fields: &[&'static str]) -> Request {
    Request { method, path: path.to_owned(), fields: fields.to_vec(), body: String::new() }
}

/// A posted form.
pub fn form(path: &str, fields: &[&'static str], body: &str) -> Request {
    Request { body: body.to_owned(), ..request("POST", path, fields) }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Sorted, with names in lower case.
    pub fields: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Removes what depends on the connection, the time, or the request's id.
    pub fn essence(mut self) -> Self {
        if let Some(id) = self.field("x-request-id").map(str::to_owned) {
            self.body = self.body.replace(&id, "");
        }
        // The value decreases while other requests are sent.
        if let Some((_, wait)) = self.fields.iter_mut().find(|(name, _)| name == "retry-after") {
            assert!(wait.parse::<u32>().is_ok_and(|seconds| seconds > 0), "retry-after: {wait}");
            wait.clear();
        }
        let own = ["date", "connection", "alt-svc", "x-request-id"];
        self.fields.retain(|(name, _)| !own.contains(&name.as_str()));
        self
    }
}

/// A directory with links and a certificate.
pub struct Secure {
    pub place: Place,
    pub directory: tempfile::TempDir,
    name: &'static str,
}

impl Secure {
    /// A place with a certificate for `localhost`.
    pub fn new() -> Self {
        Self::named("localhost")
    }

    /// A place with a certificate for this host.
    pub fn named(name: &'static str) -> Self {
        let this = Self { place: Place::new(), directory: tempfile::tempdir().expect("a directory"), name };
        this.certify();
        this
    }

    /// Replaces the certificate, and returns the new one.
    pub fn certify(&self) -> String {
        let made = testkit::certificate(&[self.name]);
        made.write(self.certificate(), self.key());
        made.cert.pem()
    }

    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// Starts a server with these additional flags.
    pub fn serve(&self, flags: &[&str]) -> Server {
        let (certificate, key) = (self.certificate(), self.key());
        let (certificate, key) = (certificate.to_str().expect("UTF-8"), key.to_str().expect("UTF-8"));
        let tls = ["--tls-listen", "127.0.0.1:0", "--cert", certificate, "--key", key];
        self.place.serve(&[&tls[..], flags].concat())
    }
}

/// The server's address for a version.
pub fn address(server: &Server, version: Version) -> SocketAddr {
    match version {
        Version::Plain => server.public,
        _ => server.secure.expect("it speaks TLS"),
    }
}

/// The answers to requests that are sent one after the other.
pub fn ask(server: &Server, version: Version, requests: &[Request]) -> Vec<Answer> {
    match version {
        Version::Http3 => h3(server, requests),
        _ => requests.iter().map(|request| curl(server, version, request)).collect(),
    }
}

/// The answer to one request.
pub fn ask_one(server: &Server, version: Version, request: Request) -> Answer {
    ask(server, version, &[request]).remove(0)
}

/// A curl command that requests one path or several.
pub fn curl_command(server: &Server, version: Version, paths: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--insecure", "--max-time", "60", "--path-as-is"]);
    command.arg(if version == Version::Http2 { "--http2" } else { "--http1.1" });
    let scheme = if version == Version::Plain { "http" } else { "https" };
    let port = address(server, version).port();
    // The host is given by name, so that the headers are the same in all versions.
    command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
    command.args(paths.iter().map(|path| format!("{scheme}://localhost:{port}{path}")));
    command
}

fn curl(server: &Server, version: Version, request: &Request) -> Answer {
    let mut command = curl_command(server, version, &[&request.path]);
    command.arg("--include");
    match request.method {
        "HEAD" => command.arg("--head"),
        method => command.args(["--request", method]),
    };
    for field in &request.fields {
        command.args(["--header", field]);
    }
    if !request.body.is_empty() || request.method == "POST" {
        command.args(["--data-raw", &request.body]);
    }
    let output = command.output().expect("curl runs");
    let mut rest = std::str::from_utf8(&output.stdout).expect("UTF-8");
    loop {
        let (head, body) = rest
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{version:?} {request:.200?}: {:?}", output.status));
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
        if status == 100 {
            rest = body;
            continue;
        }
        let field = |line: &str| {
            let (name, value) = line.split_once(':').expect("a field");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let mut fields: Vec<_> = lines.map(field).collect();
        fields.sort();
        return Answer { status, fields, body: body.to_owned() };
    }
}

/// The answers that aioquic receives to requests on one connection.
fn h3(server: &Server, requests: &[Request]) -> Vec<Answer> {
    let asked: Vec<Value> = requests
        .iter()
        .map(|request| {
            json!({ "method": request.method, "path": request.path, "fields": request.fields, "body": request.body })
        })
        .collect();
    let answers: Vec<Value> =
        serde_json::from_str(&h3_script(server, "ask", &json!(asked).to_string())).expect("JSON");
    answers
        .into_iter()
        .map(|answer| Answer {
            status: answer["status"].as_u64().and_then(|status| status.try_into().ok()).expect("a status"),
            fields: serde_json::from_value(answer["fields"].clone()).expect("fields"),
            body: answer["body"].as_str().expect("a body").to_owned(),
        })
        .collect()
}

/// The output of `h3.py`, with `input` as its standard input.
pub fn h3_script(server: &Server, what: &str, input: &str) -> String {
    let mut child = Command::new(tools::aioquic())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/secure/h3.py"))
        .arg(address(server, Version::Http3).port().to_string())
        .arg(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python runs");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The server's metrics.
pub fn metrics(server: &Server) -> String {
    let mut client = crate::http::Client::connect(server.admin).expect("it listens");
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    client.receive().expect("an answer").text().to_owned()
}

/// A value from `/metrics`, from the line that contains all of these parts.
pub fn metric(server: &Server, parts: &[&str]) -> f64 {
    let text = metrics(server);
    let mut lines = text.lines();
    let line = lines.find(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)));
    let line = line.unwrap_or_else(|| panic!("no {parts:?} in {text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}
