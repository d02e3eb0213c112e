//! Tests with a real PostgreSQL, over TCP and TLS.
#![forbid(unsafe_code)]

mod connecting;
mod feed;
mod schema;
mod sessions;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bench::postgres::{Durability, Postgres};
use postgres::{Connector, Conninfo, Error, Session};
use tempfile::TempDir;

/// A server with TLS, at a separate loopback address.
struct Server {
    postgres: Postgres,
    directory: TempDir,
    address: String,
}

impl Server {
    fn start(settings: &[&str]) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let pid = std::process::id();
        let (high, low) = (100 + pid / 250 % 100, 1 + pid % 250);
        let address = format!("127.{high}.{low}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let server = testkit::certificate(&[&address, "localhost"]);
        write(&at("server.pem"), &server.cert.pem());
        write(&at("server.key"), &server.key.serialize_pem());
        // The common name in a client's certificate is its role.
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut client = rcgen::CertificateParams::new(Vec::<String>::new()).expect("no names");
        client.distinguished_name = rcgen::DistinguishedName::new();
        client.distinguished_name.push(rcgen::DnType::CommonName, "bob");
        write(&at("client.pem"), &client.self_signed(&key).expect("a certificate").pem());
        write(&at("client.key"), &key.serialize_pem());
        let hba = "local all all trust\nhostssl all bob 0.0.0.0/0 cert\nhostssl all ada 0.0.0.0/0 scram-sha-256\n\
                   hostnossl all plain 0.0.0.0/0 trust\n";
        write(&at("hba.conf"), hba);
        let own = [
            format!("listen_addresses={address}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", at("server.pem")),
            format!("ssl_key_file={}", at("server.key")),
            format!("ssl_ca_file={}", at("client.pem")),
            format!("hba_file={}", at("hba.conf")),
        ];
        let all: Vec<&str> = own.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        let postgres = Postgres::start(Durability::None, &all).expect("PostgreSQL starts");
        let roles = "BEGIN READ WRITE; CREATE ROLE ada LOGIN PASSWORD 'secret'; \
                     CREATE ROLE bob LOGIN; CREATE ROLE plain LOGIN; COMMIT";
        postgres.execute("postgres", roles).expect("it answers");
        Self { postgres, directory, address }
    }

    fn at(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Connects through its Unix socket.
    fn local(&self) -> Conninfo {
        self.postgres.url("postgres").parse().expect("a URL")
    }
}

/// A file that only PostgreSQL's user may read.
fn write(path: &str, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = ["postgres:", "nobody:"]
        .iter()
        .find_map(|name| accounts.lines().find_map(|line| line.strip_prefix(name)));
    let mut numbers =
        user.into_iter().flat_map(|line| line.split(':').skip(1)).filter_map(|number| number.parse().ok());
    // If the test doesn't run as root, the server runs as the same user.
    let _ = chown(Path::new(path), numbers.next(), numbers.next());
}

async fn connect(conninfo: &str) -> Result<Arc<Session>, Error> {
    let conninfo: Conninfo = conninfo.parse().unwrap_or_else(|error| panic!("{conninfo}: {error}"));
    Connector::new(&conninfo, "test").connect().await
}
