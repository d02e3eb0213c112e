//! Each service with some content, and all its listeners.

use std::net::SocketAddr;

use abuse::client::Client;
use abuse::crowd::Door;
use abuse::http3;
use abuse::model::{Answer, Body, ParsedRequest, Rules};
use abuse::program::{Place, Program, knows};
use abuse::secure::{Either, Secure};

/// The size of `/large` in files, in bytes.
pub const LARGE: u64 = 64 << 20;

/// The longest head that links and files accept (see their READMEs), and the listener's default.
const SMALL_HEAD: usize = 8 * 1024;
const HEAD: usize = 16 * 1024;

/// A running service.
pub struct Service {
    /// `links`, `api` or `files`.
    pub name: &'static str,
    pub program: Program,
    pub place: Place,
    /// Headers that identify the operator.
    pub token: String,
    pub listeners: Vec<Listener>,
    /// Its HTTP/3 address, which serves the same as its first listener.
    pub http3: Option<http3::Door>,
}

/// A listener of a service, with one protocol.
#[derive(Clone)]
pub struct Listener {
    /// Such as `links, public`.
    pub name: String,
    pub door: Door,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
    /// Whether it is the operator's.
    pub admin: bool,
    /// The target that a visitor requests. It is answered with `visited`.
    pub visit: &'static str,
    pub visited: u16,
    /// A request for the largest answer available without a key, over HTTP/1.1.
    pub largest: &'static str,
    /// The head of a request with a body, without its last line, which gives the body's length.
    pub form: String,
    /// Its limits.
    pub rules: Rules,
    /// Targets that are worth requesting.
    pub targets: &'static [&'static str],
}

/// The limits of a listener that uses the crate `listener`.
const LISTENER: Rules = Rules { head_bytes: HEAD, fields: 100, body_bytes: u64::MAX, bodies_close: true };

impl Listener {
    /// Checks the answer to a visit on a new connection.
    pub fn visit(&self) -> Result<(), String> {
        let failed = |why: std::io::Error| format!("{}: a visitor is not answered: {why}", self.name);
        let status = if self.http2 {
            abuse::http2::get(&mut self.door.connect().map_err(failed)?, self.visit).map_err(failed)?
        } else {
            let mut client = Client::on(self.door.connect().map_err(failed)?).map_err(failed)?;
            client.ask("GET", self.visit, "Connection: close\r\n", b"").map_err(failed)?.status
        };
        if status == self.visited { Ok(()) } else { Err(format!("{}: a visitor gets {status}", self.name)) }
    }

    /// A visitor who stays connected.
    pub fn guest(&self) -> std::io::Result<Client<Either>> {
        let mut client = Client::on(self.door.connect()?)?;
        client.ask("GET", self.visit, "", b"")?;
        Ok(client)
    }

    /// Whether an answer suits its request, as far as the answer shows it.
    pub fn fits(&self, asked: &ParsedRequest, answer: &Answer) -> Result<(), String> {
        let (target, text) = (asked.target.as_str(), String::from_utf8_lossy(&answer.body));
        let plain = asked.method == "GET" && asked.body == Body::None && !asked.doubtful;
        if text.contains("what is in loot") && !target.contains("loot") {
            return Err("another's answer".into());
        }
        if let Some(location) = answer.field("location")
            && let Some(code) = location.strip_prefix("https://t.example/")
            && !asked.doubtful
            && !target.contains(code)
        {
            return Err("another's redirect".into());
        }
        let expected = match (self.visit == "/abc", target) {
            (true, "/abc" | "/def") => Some(307),
            (false, "/a" | "/b" | "/healthz" | "/openapi.json") if self.targets.contains(&target) => {
                Some(200)
            }
            (_, "/missing") => Some(404),
            _ => None,
        };
        match expected {
            Some(status) if plain && answer.status != status => Err(format!("not {status}")),
            _ if plain
                && (target == "/a" || target == "/b")
                && !answer.body.is_empty()
                && answer.status == 200 =>
            {
                let whole = format!("what is in {}", &target[1..]);
                if text.starts_with(&whole) { Ok(()) } else { Err("another's body".into()) }
            }
            _ => Ok(()),
        }
    }
}

/// The flags among these that a service knows.
fn known(name: &str, flags: &[&str]) -> Vec<String> {
    let pairs = flags.chunks(2).filter(|pair| knows(name, pair[0]));
    pairs.flatten().map(|&flag| flag.to_owned()).collect()
}

fn start(name: &str, place: &Place, own: &[String], flags: &[&str]) -> Program {
    let own = own.iter().map(String::as_str);
    let flags: Vec<&str> = own.chain(flags.iter().copied()).collect();
    Program::serve(name, place, &flags)
}

/// Timeouts of a few seconds, and more for handshakes on a busy machine, for a service that has these flags.
pub const IMPATIENT: [&str; 8] =
    ["--head-timeout", "10", "--idle-timeout", "5", "--write-timeout", "4", "--body-timeout", "4"];

/// links, with `/abc` and `/def`, and `/locked`, which has a password.
pub fn links(flags: &[&str]) -> Service {
    let place = Place::new();
    let own =
        ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database", "links.db"].map(str::to_owned);
    let own = [&own[..], &place.tls_flags(), &known("links", &IMPATIENT)].concat();
    let program = start("links", &place, &own, flags);
    let token = program.line("token").expect("the first start prints a token");
    let token = format!("Authorization: Bearer {token}\r\n");
    let admin = program.listens("admin", "http");
    for link in [
        r#"{"code":"abc","target":"https://t.example/abc"}"#,
        r#"{"code":"def","target":"https://t.example/def"}"#,
        r#"{"code":"locked","target":"https://t.example/locked","password":"open sesame"}"#,
    ] {
        let fields = format!("{token}Content-Type: application/json\r\n");
        let answer =
            abuse::program::ask(admin, "POST", "/api/v1/links", &fields, link.as_bytes()).expect("an answer");
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let public = Listener {
        name: "links, public".into(),
        door: plain(program.listens("links", "http")),
        http2: false,
        admin: false,
        visit: "/abc",
        visited: 307,
        largest: "GET /robots.txt HTTP/1.1\r\nHost: h\r\n\r\n",
        form:
            "POST /locked HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                .into(),
        // A body that is longer than any form isn't read.
        rules: Rules { head_bytes: SMALL_HEAD, fields: 64, body_bytes: 16 * 1024, ..LISTENER },
        targets: &["/abc", "/def", "/locked", "/missing", "/%61bc", "/abc?x=1", "http://h/abc", "*"],
    };
    let secure = program.listens("links", "https");
    let by_tls = by(&public, "links, TLS", secure, &place, "http/1.1");
    let by_http2 = Listener { http2: true, ..by(&by_tls, "links, HTTP/2", secure, &place, "h2") };
    let operators = Listener {
        name: "links, admin".into(),
        door: plain(admin),
        admin: true,
        visit: "/healthz",
        visited: 200,
        largest: "GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        form: format!(
            "POST /api/v1/links HTTP/1.1\r\nHost: localhost\r\n{token}Content-Type: application/json\r\n"
        ),
        rules: Rules { head_bytes: 32 * 1024, ..LISTENER },
        targets: &["/healthz", "/readyz", "/api/v1/links", "/api/v1/links/abc", "/missing", "*"],
        ..public.clone()
    };
    let http3 = Some(http3::Door::new(secure, &place.path("cert.pem")));
    let listeners = vec![public, operators, by_tls, by_http2];
    Service { name: "links", program, place, token, listeners, http3 }
}

/// The API with its own database, and no keys.
pub fn api(flags: &[&str]) -> Service {
    let place = Place::new();
    let own = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database-url", "sqlite:users.db"];
    let own = [&own.map(str::to_owned)[..], &place.tls_flags(), &known("api", &IMPATIENT)].concat();
    let program = start("api", &place, &own, flags);
    let public = Listener {
        name: "api, public".into(),
        door: plain(program.listens("api", "http")),
        http2: false,
        admin: false,
        visit: "/openapi.json",
        visited: 200,
        largest: "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        form: "POST /v1/users HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".into(),
        rules: LISTENER,
        targets: &[
            "/openapi.json",
            "/v1/users",
            "/v1/users:validate",
            "/missing",
            "/v1/users:count",
            "*",
            "http://h/",
        ],
    };
    let secure = program.listens("api", "https");
    let by_tls = by(&public, "api, TLS", secure, &place, "http/1.1");
    let by_http2 = Listener { http2: true, ..by(&public, "api, HTTP/2", secure, &place, "h2") };
    let operators = operators(&public, "api, admin", program.listens("admin", "http"));
    let listeners = vec![public, by_tls, by_http2, operators];
    let http3 = Some(http3::Door::new(secure, &place.path("cert.pem")));
    Service { name: "api", program, place, token: String::new(), listeners, http3 }
}

/// files, with `/a`, `/b`, `/large` and a directory `/many/` of thousands.
pub fn files(flags: &[&str]) -> Service {
    let place = Place::new();
    for name in ["a", "b", "loot"] {
        place.file(&format!("root/{name}"), format!("what is in {name}").repeat(40));
    }
    let large = std::fs::File::create(place.path("root/large")).expect("a file");
    large.set_len(LARGE).expect("a hole");
    for number in 0..3000 {
        place.file(&format!("root/many/{}{number}", "n".repeat(200)), "");
    }
    let own = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--root", "root", "--listing"];
    let own = [&own.map(str::to_owned)[..], &place.tls_flags(), &known("files", &IMPATIENT)].concat();
    let program = start("files", &place, &own, flags);
    let public = Listener {
        name: "files, public".into(),
        door: plain(program.listens("files", "http")),
        http2: false,
        admin: false,
        visit: "/a",
        visited: 200,
        largest: "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
        form: "POST /a HTTP/1.1\r\nHost: localhost\r\n".into(),
        rules: Rules { head_bytes: SMALL_HEAD, fields: 64, ..LISTENER },
        targets: &["/a", "/b", "/missing", "/many/?format=json", "/../loot", "http://h/a", "*", "/a?b"],
    };
    let secure = program.listens("secure", "https");
    let by_tls = by(&public, "files, TLS", secure, &place, "http/1.1");
    let by_http2 = Listener { http2: true, ..by(&public, "files, HTTP/2", secure, &place, "h2") };
    let operators = operators(&public, "files, admin", program.listens("admin", "http"));
    let listeners = vec![public, by_tls, by_http2, operators];
    let http3 = Some(http3::Door::new(secure, &place.path("cert.pem")));
    Service { name: "files", program, place, token: String::new(), listeners, http3 }
}

/// All three services, with these flags.
pub fn all(flags: &[&str]) -> [Service; 3] {
    [links(flags), api(flags), files(flags)]
}

fn plain(address: SocketAddr) -> Door {
    Door { address, secure: None }
}

fn by(public: &Listener, name: &str, address: SocketAddr, place: &Place, protocol: &str) -> Listener {
    let secure = Some(Secure::new(&place.path("cert.pem"), protocol));
    Listener { name: name.into(), door: Door { address, secure }, ..public.clone() }
}

fn operators(public: &Listener, name: &str, address: SocketAddr) -> Listener {
    Listener {
        name: name.into(),
        door: plain(address),
        admin: true,
        visit: "/healthz",
        visited: 200,
        largest: "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        form: "POST /healthz HTTP/1.1\r\nHost: localhost\r\n".into(),
        rules: LISTENER,
        targets: &["/healthz", "/readyz", "/metrics", "/missing", "*"],
        ..public.clone()
    }
}
