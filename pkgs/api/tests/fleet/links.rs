//! Two nodes of links, visitors that constantly follow links, writers, and a record of what they have seen.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Server;

use crate::client::{Answer, Client};
use crate::load::{Versions, Writes};
use crate::place::ask;

/// Codes that are each requested once, so that no cache has any of them.
pub const COLD: u64 = 40_000;

/// How often the limited link may be followed. Visits that are left at the end are used up then.
const LIMIT: u64 = 6_000;

/// A running server; killed when dropped.
pub struct Node {
    process: Server,
    pub public: SocketAddr,
    admin: SocketAddr,
    token: String,
}

impl Node {
    /// A server on that database. The first one there gets the token.
    pub fn start(program: &Path, database: &str, token: Option<&str>) -> Self {
        let process = Server::program(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2"])
            .args(["--staleness", "1000", "--database", database])
            .start();
        let (public, admin) = (process.listens("links", "http"), process.listens("admin", "http"));
        let token = process.line("token").or(token).expect("the first start prints a token").to_owned();
        Self { process, public, admin, token }
    }

    /// For the API.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The API's answer to a request for links. Each uses a new connection, since the server closes a connection whose
    /// request it refuses without reading it.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
        let fields = format!("Authorization: Bearer {}\r\nContent-Type: application/{kind}\r\n", self.token);
        ask(&mut Client::connect(self.admin), method, &format!("/api/v1/links{path}"), &fields, body)
    }

    /// Creates a link, which has to succeed.
    pub fn create(&self, link: &Value) {
        let answer = self.send("POST", "", &link.to_string());
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// The clicks of a link that are stored by now, if the node answers.
    pub fn clicks(&self, code: &str) -> Option<u64> {
        let answer = self.send("GET", &format!("/{code}"), "");
        serde_json::from_slice::<Value>(&answer.body).ok()?["clicks"].as_u64()
    }
}

/// A visitor that follows links.
struct Visitor {
    address: SocketAddr,
    client: Client,
}

impl Visitor {
    fn of(node: &Node) -> Self {
        Self { address: node.public, client: Client::connect(node.public) }
    }

    fn visit(&mut self, code: &str) -> Answer {
        let answer = self.client.get(&format!("/{code}"), "");
        if answer.closes() {
            self.client = Client::connect(self.address);
        }
        answer
    }
}

/// Whether an answer says that it may be older than the bound.
fn says(answer: &Answer, detail: &str) -> bool {
    answer.field("cache-status").is_some_and(|field| field.contains(detail))
}

/// What was seen; all clients share it.
#[derive(Default)]
pub struct Seen {
    pub over: AtomicBool,
    /// Links whose creation was acknowledged.
    pub created: Writes,
    pub refused: AtomicU64,
    /// The acknowledged targets of the one link that constantly changes.
    versions: Versions,
    /// How often each was followed.
    pub hot: AtomicU64,
    pub changed: AtomicU64,
    pub limited: AtomicU64,
    /// Visits to the hot link that weren't redirected.
    pub failed: AtomicU64,
    /// Redirects to targets older than the bound that didn't say so.
    pub stale: AtomicU64,
    /// Redirects that said that the database is away.
    pub lingering: AtomicU64,
    /// Redirects of codes that no cache had: from a standby, and refused ones.
    pub standby: AtomicU64,
    pub cold: AtomicU64,
    pub cold_refused: AtomicU64,
}

impl Seen {
    /// The links that exist from the start.
    pub fn prepare(node: &Node) {
        for code in ["hot", "changed"] {
            node.create(&json!({ "code": code, "target": "https://t.example/0" }));
        }
        node.create(&json!({ "code": "limited", "target": "https://t.example/0", "max_clicks": LIMIT }));
    }

    /// SQL that makes the codes that are requested once.
    pub fn cold_links() -> String {
        format!(
            "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
             SELECT 0, 'cold-' || n, 'https://t.example/' || n, '{{}}', 0, 307, false, 0, 0 \
             FROM generate_series(1, {COLD}) AS n"
        )
    }

    fn on(&self) -> bool {
        !self.over.load(Relaxed)
    }

    /// Creates links.
    pub fn create(&self, number: usize, node: &Node) {
        for link in 0.. {
            if !self.on() {
                return;
            }
            let code = format!("n{number}-{link}");
            let body = json!({ "code": code, "target": format!("https://t.example/{code}") }).to_string();
            match node.send("POST", "", &body).status {
                201 => self.created.note(code, number),
                503 => drop(self.refused.fetch_add(1, Relaxed)),
                status => panic!("{code}: {status}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Changes one link again and again.
    pub fn change(&self, node: &Node) {
        for version in 1.. {
            if !self.on() {
                return;
            }
            let body = json!({ "target": format!("https://t.example/{version}") }).to_string();
            if node.send("PATCH", "/changed", &body).status == 200 {
                self.versions.note(version);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Follows the link that doesn't change, and the link that changes, and checks that the latter's target is new
    /// enough.
    pub fn follow(&self, node: &Node) {
        let mut visitor = Visitor::of(node);
        while self.on() {
            let asked = Instant::now();
            let hot = visitor.visit("hot");
            match hot.status {
                307 => drop(self.hot.fetch_add(1, Relaxed)),
                status => {
                    let text = String::from_utf8_lossy(&hot.body);
                    println!(
                        "fleet: a hot link answered {status} after {:?}: {:?} {text}",
                        asked.elapsed(),
                        hot.fields
                    );
                    self.failed.fetch_add(1, Relaxed);
                }
            }
            let least = self.versions.least(Instant::now());
            let answer = visitor.visit("changed");
            if answer.status == 307 {
                self.changed.fetch_add(1, Relaxed);
                let target = answer.field("location").expect("a redirect leads somewhere");
                let version: i64 =
                    target.rsplit('/').next().and_then(|last| last.parse().ok()).expect("a number");
                if says(&answer, "detail=") {
                    self.lingering.fetch_add(1, Relaxed);
                } else if version < least {
                    println!("fleet: {target}, where {least} was acknowledged long ago");
                    self.stale.fetch_add(1, Relaxed);
                }
            } else {
                assert_eq!(answer.status, 503, "{answer:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Follows a link with a limited number of visits, until it is used up or everything is over.
    pub fn use_up(&self, node: &Node, pause: Duration) {
        let (mut visitor, mut gone) = (Visitor::of(node), 0);
        // The other node may give back what it was granted and didn't need.
        while gone < 20 && (self.on() || pause.is_zero()) {
            match visitor.visit("limited").status {
                307 => drop(self.limited.fetch_add(1, Relaxed)),
                410 => gone += 1,
                503 => {}
                status => panic!("{status}"),
            }
            std::thread::sleep(pause);
        }
    }

    /// Follows links that nobody has followed before: they are read from the primary or, if there is none, from a
    /// standby.
    pub fn look_up(&self, node: &Node) {
        let mut visitor = Visitor::of(node);
        for number in 1..=COLD {
            if !self.on() {
                return;
            }
            let answer = visitor.visit(&format!("cold-{number}"));
            match answer.status {
                307 => {
                    let target = format!("https://t.example/{number}");
                    assert_eq!(answer.field("location"), Some(target), "{answer:?}");
                    self.cold.fetch_add(1, Relaxed);
                    self.standby.fetch_add(u64::from(says(&answer, "detail=standby")), Relaxed);
                }
                503 => drop(self.cold_refused.fetch_add(1, Relaxed)),
                status => panic!("{status}: {answer:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Checks at the end: everything acknowledged is there, and each click counts once.
    pub fn settle(&self, nodes: &[Node]) {
        let number = |of: &AtomicU64| of.load(Relaxed);
        nodes.iter().for_each(|node| self.use_up(node, Duration::ZERO));
        let mut visitors: Vec<Visitor> = nodes.iter().map(Visitor::of).collect();
        let (mut missing, created) = (0, self.created.all());
        for code in &created {
            for visitor in &mut visitors {
                let answer = visitor.visit(code);
                let is_there = answer.field("location") == Some(format!("https://t.example/{code}"));
                missing += usize::from(!is_there);
            }
        }
        println!(
            "fleet: links: {} acknowledged, {missing} of them not stored, {} refused; {} redirects of a hot link, {} failed; \
             {} of a link that is changed, {} older than the bound, {} while the database was away; {} not cached, {} of them \
             of a standby, {} refused; {} of {LIMIT} clicks of a limit",
            created.len(),
            number(&self.refused),
            number(&self.hot),
            number(&self.failed),
            number(&self.changed),
            number(&self.stale),
            number(&self.lingering),
            number(&self.cold),
            number(&self.standby),
            number(&self.cold_refused),
            number(&self.limited),
        );
        for (code, followed) in [("hot", &self.hot), ("changed", &self.changed), ("limited", &self.limited)] {
            let (followed, begin) = (number(followed), Instant::now());
            let mut counted = None;
            while counted != Some(followed) && begin.elapsed() < Duration::from_secs(120) {
                std::thread::sleep(Duration::from_millis(50));
                counted = nodes[0].clicks(code);
            }
            assert_eq!(counted, Some(followed), "clicks of {code} are counted once each");
        }
        assert_eq!(
            (missing, number(&self.failed), number(&self.stale)),
            (0, 0, 0),
            "acknowledged is stored, a hot link is always answered, and nothing is older than the bound"
        );
        assert!(number(&self.limited) <= LIMIT, "no more clicks than the limit has");
        assert!(
            number(&self.standby) > 0,
            "while there is no primary, what no cache has is read of a standby"
        );
    }
}
