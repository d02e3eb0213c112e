//! Certificates by name and sessions with tickets, as curl, openssl and aioquic see them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::h3;
use crate::server::Server;

/// curl's exit status if the presented certificate is for another name (curl(1)).
const OTHER_NAME: i32 = 60;

/// The name that each client requests, and the name in the certificate it gets.
const SHOWN: [(&str, &str); 5] = [
    ("localhost", "localhost"),
    ("a.example", "a.example"),
    ("x.b.example", "*.b.example"),
    // A wildcard stands for one label.
    ("y.x.b.example", "localhost"),
    ("other.example", "localhost"),
];

/// A self-signed certificate for `name`, in two files in `directory`: the chain, then the key.
fn certificate(directory: &Path, name: &str) -> [PathBuf; 2] {
    let file = |kind: &str| directory.join(format!("{}.{kind}.pem", name.replace('*', "any")));
    signed(name, &rcgen::PKCS_ECDSA_P256_SHA256, [file("chain"), file("key")])
}

/// The same with any kind of key.
fn signed(name: &str, algorithm: &'static rcgen::SignatureAlgorithm, files: [PathBuf; 2]) -> [PathBuf; 2] {
    let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
    let params = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    std::fs::write(&files[0], certificate.pem()).expect("a writable directory");
    std::fs::write(&files[1], key.serialize_pem()).expect("a writable directory");
    files
}

/// A server with a certificate for each name in [`SHOWN`], and a file with all of these.
fn start(directory: &Path) -> (Server, PathBuf) {
    let mut arguments = Vec::new();
    for name in ["a.example", "*.b.example"] {
        let [chain, key] = certificate(directory, name).map(|file| file.display().to_string());
        arguments.extend(["--certificate".to_owned(), chain, "--key".to_owned(), key]);
    }
    let server = Server::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let chains = [server.certificate.chain(), PathBuf::from(&arguments[1]), PathBuf::from(&arguments[5])];
    let all: String = chains.map(|chain| std::fs::read_to_string(chain).expect("a chain")).concat();
    let trusted = directory.join("trusted.pem");
    std::fs::write(&trusted, all).expect("a writable directory");
    (server, trusted)
}

/// What `openssl s_client` prints for a connection on which it requests `/`.
fn openssl(server: &Server, arguments: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-connect", &server.secure.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs");
    let mut pipe = client.stdin.take().expect("it is piped");
    pipe.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("openssl reads");
    let output = client.wait_with_output().expect("it is a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Hello, World!"), "{text}");
    text
}

#[test]
fn each_name_is_shown_its_certificate() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (server, trusted) = start(directory.path());
    let port = server.secure.port();
    for (name, shown) in SHOWN {
        let curl = Command::new("curl")
            .args([
                "--silent",
                "--max-time",
                "60",
                "--resolve",
                &format!("{name}:{port}:127.0.0.1"),
                "--cacert",
            ])
            .arg(&trusted)
            .arg(format!("https://{name}:{port}/"))
            .output()
            .expect("curl runs");
        let fits = name == shown || shown.starts_with('*');
        let expected = if fits { (0, "Hello, World!") } else { (OTHER_NAME, "") };
        let text = String::from_utf8_lossy(&curl.stdout);
        assert_eq!((curl.status.code().unwrap_or(-1), &*text), expected, "{name}");

        let chain = match shown {
            "localhost" => server.certificate.chain(),
            shown => directory.path().join(format!("{}.chain.pem", shown.replace('*', "any"))),
        };
        let expected = std::fs::read_to_string(chain).expect("a chain").replace('\r', "");
        let text = openssl(&server, &["-servername", name]);
        assert!(text.contains(expected.trim()), "{name}: {text}");
    }
    let default = std::fs::read_to_string(server.certificate.chain()).expect("a chain").replace('\r', "");
    assert!(openssl(&server, &["-noservername"]).contains(default.trim()), "who names nobody");
    h3::run(&server, &["shows_certificates_by_name"]);
}

#[test]
fn a_client_is_shown_a_certificate_whose_signatures_it_takes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut arguments = Vec::new();
    for (kind, algorithm) in [("ecdsa", &rcgen::PKCS_ECDSA_P256_SHA256), ("rsa", &rcgen::PKCS_RSA_SHA256)] {
        let files = ["chain", "key"].map(|what| directory.path().join(format!("{kind}.{what}")));
        let [chain, key] = signed("a.example", algorithm, files).map(|file| file.display().to_string());
        arguments.extend(["--certificate".to_owned(), chain, "--key".to_owned(), key]);
    }
    let server = Server::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    for (offer, kind) in [
        (&["-tls1_3"][..], "ecdsa"),
        (&["-tls1_2"], "ecdsa"),
        (&["-tls1_3", "-sigalgs", "RSA-PSS+SHA256:ECDSA+SHA256"], "ecdsa"),
        (&["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"], "rsa"),
        (&["-tls1_2", "-sigalgs", "RSA-PSS+SHA256"], "rsa"),
        // Before TLS 1.3, the cipher suite names it too.
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], "rsa"),
    ] {
        let chain = std::fs::read_to_string(directory.path().join(format!("{kind}.chain"))).expect("a chain");
        let text = openssl(&server, &[offer, &["-servername", "a.example"]].concat());
        assert!(text.contains(chain.replace('\r', "").trim()), "{offer:?}: {text}");
    }
}

#[test]
fn sessions_are_resumed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // The lifetime of sessions is tested where tickets are made.
    let server = Server::start(&["--workers", "2", "--ticket-key", "3600"]);
    let versions = ["-tls1_2", "-tls1_3"];
    let file = |version: &str| directory.path().join(version).display().to_string();
    for version in versions {
        let first = openssl(&server, &[version, "-sess_out", &file(version)]);
        assert!(first.contains("\nNew, TLSv1."), "{first}");
    }
    // Any worker resumes a session, as often as the client likes.
    for version in versions {
        for _ in 0..4 {
            let text = openssl(&server, &[version, "-sess_in", &file(version)]);
            assert!(text.contains("\nReused, TLSv1."), "{version}: {text}");
        }
    }
}
