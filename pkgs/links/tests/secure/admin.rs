//! The admin listener with TLS, and the command line as its client.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{logged, until};

use crate::http::Client;
use crate::server::{BINARY, Place, Server};

/// A certificate authority, and a directory with its files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let this = Self { issuer: Issuer::new(params, key), directory };
        fs::write(this.file("ca.pem"), certificate.pem()).expect("a writable directory");
        this
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_str().expect("UTF-8").to_owned()
    }

    /// Signs a certificate for `localhost`, into these files.
    fn sign(&self, chain: PathBuf, key: PathBuf) {
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let made = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&made, &self.issuer).expect("a certificate");
        fs::write(chain, certificate.pem()).expect("a writable directory");
        fs::write(key, made.serialize_pem()).expect("a writable directory");
    }

    /// A server whose admin listener has a signed certificate.
    fn serve(&self, place: &Place, flags: &[&str]) -> Server {
        self.sign(self.file("chain.pem"), self.file("key.pem"));
        let (chain, key) = (self.text("chain.pem"), self.text("key.pem"));
        place.serve(&[&["--admin-cert", &chain, "--admin-key", &key], flags].concat())
    }
}

/// Runs a command over the API at `host`. `system` is the authority that the system trusts.
fn run(server: &Server, host: &str, system: &Authority, args: &[&str]) -> Output {
    Command::new(BINARY)
        .env_clear()
        .env("SSL_CERT_FILE", system.file("ca.pem"))
        .env("LINERATE_LINKS_TOKEN", &server.token)
        .args(args)
        .args(["--api", &format!("https://{host}:{}", server.admin.port())])
        .output()
        .expect("the binary runs")
}

/// The output of a command that must succeed.
fn ok(output: Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Checks that a command failed with this code, and with one line that contains the reason.
fn refused(output: &Output, code: i32, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.lines().count() == 1 && said.contains(why), "not {why:?}: {said}");
}

#[test]
fn commands_work_over_https_with_an_authority_of_ones_own() {
    let (authority, stranger) = (Authority::new("one"), Authority::new("another"));
    let place = Place::new();
    let server = authority.serve(&place, &[]);
    let trusted = ["--cacert", &authority.text("ca.pem")];
    let run_trusting = |args: &[&str]| run(&server, "localhost", &stranger, &[args, &trusted].concat());
    assert!(ok(run_trusting(&["add", "https://t.example/", "--code", "abc"])).ends_with("/abc\n"));
    assert!(ok(run_trusting(&["list"])).contains("https://t.example/"));
    // More than a connection holds at once, in both directions.
    let rows: String = (0..20_000).map(|n| format!("c{n},https://t.example/{n}\n")).collect();
    let file = authority.file("links.csv");
    fs::write(&file, format!("code,target\n{rows}")).expect("a writable directory");
    ok(run_trusting(&["import", file.to_str().expect("UTF-8")]));
    let exported = ok(run_trusting(&["export", "--format", "csv"]));
    assert_eq!(exported.lines().count(), 20_002, "with the head, and the one from before");
    ok(run_trusting(&["rm", "abc"]));
    refused(&run_trusting(&["get", "abc"]), 2, "abc");
    // The system's authorities are trusted if no file is named.
    ok(run(&server, "localhost", &authority, &["get", "c1"]));
    server.stop();
}

#[test]
fn a_server_that_is_not_known_is_told_nothing() {
    let (authority, stranger) = (Authority::new("one"), Authority::new("another"));
    let place = Place::new();
    let server = authority.serve(&place, &[]);
    let list = |host, args: &[&str]| run(&server, host, &stranger, &[&["list"], args].concat());
    let ca = authority.text("ca.pem");
    refused(&list("localhost", &[]), 2, "no authority that is trusted has signed its certificate");
    let namesake = Authority::new("one");
    refused(&list("localhost", &["--cacert", &namesake.text("ca.pem")]), 2, "has signed its certificate");
    refused(&list("127.0.0.1", &["--cacert", &ca]), 2, "its certificate is for another name");
    refused(&list("localhost", &["--cacert", &authority.text("key.pem")]), 2, "has no certificate");
    refused(&list("localhost", &["--cacert", "/nowhere.pem"]), 2, "/nowhere.pem");
    // Without TLS, no certificate is needed.
    let clear = Command::new(BINARY)
        .env_clear()
        .args(["list", "--token", &server.token, "--api", &format!("http://{}", server.admin)])
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&clear.stderr);
    assert!(clear.status.code() == Some(2) && said.contains("ask by https://"), "{clear:?}");
    server.stop();
}

#[test]
fn its_certificate_is_read_again_and_shown_as_a_metric() {
    let (before, after) = (Authority::new("one"), Authority::new("another"));
    let place = Place::new();
    let server = before.serve(&place, &[]);
    let trusts = |authority: &Authority| {
        let args = ["list", "--cacert", &authority.text("ca.pem")];
        run(&server, "localhost", authority, &args).status.success()
    };
    assert!(trusts(&before) && !trusts(&after));
    after.sign(before.file("chain.pem"), before.file("key.pem"));
    server.signal(Signal::HUP);
    until("the new certificate", || trusts(&after));
    assert!(!trusts(&before));
    fs::write(before.file("key.pem"), "no key").expect("a writable directory");
    server.signal(Signal::HUP);
    server.wait_for_log("certificates stay as they are");
    assert!(trusts(&after));
    // The server also notices a new certificate without a signal.
    before.sign(before.file("chain.pem"), before.file("key.pem"));
    until("the newest certificate", || trusts(&before));
    let metrics = Command::new("curl")
        .args(["--silent", "--max-time", "60", "--cacert", &before.text("ca.pem")])
        .arg(format!("https://localhost:{}/metrics", server.admin.port()))
        .output()
        .expect("curl runs");
    let metrics = String::from_utf8_lossy(&metrics.stdout);
    let series = "linerate_links_certificate_not_after_seconds{listener=\"admin\",name=\"localhost\"} ";
    let left = metrics.lines().find_map(|line| line.strip_prefix(series)?.parse::<f64>().ok());
    assert!(left.is_some_and(|left| left > 24.0 * 3600.0), "{metrics}");
    server.stop();
}

#[test]
fn who_does_not_speak_tls_is_not_waited_for() {
    let authority = Authority::new("one");
    let place = Place::new();
    let server = authority.serve(&place, &["--head-timeout", "3"]);
    let connect = || {
        let stream = TcpStream::connect(server.admin).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        stream
    };
    // A client without TLS learns this from the answer, which is not encrypted. Then the connection ends.
    let (mut plain, mut said) = (connect(), Vec::new());
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let _ = plain.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("https://"), "{said:?}");
    // The first bytes of an incomplete record, and nothing at all.
    for sent in [&b"\x16\x03\x01\x02\x00"[..], b""] {
        let (mut silent, mut said) = (connect(), Vec::new());
        silent.write_all(sent).expect("it reads");
        let ended = silent.read_to_end(&mut said);
        let cut = ended.err().is_none_or(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(cut && said.is_empty(), "{said:?}");
    }
    // Many such clients are closed to make room for one that speaks TLS.
    let crowd: Vec<TcpStream> = (0..400).map(|_| connect()).collect();
    ok(run(&server, "localhost", &authority, &["list"]));
    drop(crowd);
    server.stop();
}

#[test]
fn what_operators_ask_is_logged_by_what_it_came_and_what_is_refused_as_it_was() {
    let authority = Authority::new("one");
    let log = authority.text("access.log");
    let line = |path: &str| {
        let mut lines = Vec::new();
        until("its line", || {
            lines = logged(&log);
            lines.retain(|line| line["path"] == path);
            !lines.is_empty()
        });
        lines.remove(0)
    };
    let place = Place::new();
    let server = authority.serve(&place, &["--access-log", &log]);
    for (version, http) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let url = format!("https://localhost:{}/by{version}", server.admin.port());
        let answer = Command::new("curl")
            .args(["--silent", "--max-time", "60", "--cacert", &authority.text("ca.pem"), version, &url])
            .output()
            .expect("curl runs");
        let problem: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
        let line = line(&format!("/by{version}"));
        let seen = [&line["tls"], &line["http"], &line["id"], &line["status"]];
        assert_eq!(seen, [&json!("1.3"), &json!(http), &problem["request_id"], &json!(404)], "{line}");
    }
    server.stop();
    let server = place.serve(&["--access-log", &log]);
    let mut client = Client::connect(server.admin).expect("it listens");
    client.send("GET /refused HTTP/1.1\r\nHost: a.example\r\nExpect: more\r\n\r\n").expect("it reads");
    let refused = client.receive().expect("an answer");
    let problem: Value = serde_json::from_slice(&refused.body).expect("JSON");
    let line = line("/refused");
    let seen = [&line["tls"], &line["status"], &line["id"]];
    assert_eq!(seen, [&Value::Null, &json!(417), &problem["request_id"]], "{line}");
    assert_eq!(refused.status, 417);
    let mut client = Client::connect(server.admin).expect("it listens");
    client.send("GET /.refused/417 HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    assert_eq!(client.receive().expect("an answer").status, 404, "nothing is there");
    server.stop();
}
