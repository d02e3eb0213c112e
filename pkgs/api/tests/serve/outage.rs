//! PostgreSQL is stopped under the service while clients read and write, hangs, and comes back.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::postgres::{Durability, Postgres};
use bench::usage::descendants;
use data_encoding::BASE64URL_NOPAD;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use testkit::{until, wait_for};

use crate::client::{Answer, Client};
use crate::place::{Place, Server, ask, problem, user, value};

/// The service's limits: how long it waits for a connection and for an answer, how old a cached read may be, and for
/// how long it continues without the database.
const FLAGS: [&str; 8] = [
    "--acquire-timeout",
    "500",
    "--database-timeout",
    "1000",
    "--staleness",
    "2000",
    "--cached-while-down",
    "3600",
];

/// How old a cached read may be.
const STALENESS: Duration = Duration::from_secs(2);

/// A server with its own PostgreSQL.
fn start(durability: Durability, flags: &[&str]) -> (Postgres, Place, Server) {
    // None of the server's processes ends by itself.
    let postgres = Postgres::start(durability, &["autovacuum=off"]).expect("PostgreSQL starts");
    let place = Place::on(postgres.url("postgres"));
    let server = place.serve(&[&FLAGS[..], flags].concat());
    (postgres, place, server)
}

/// Checks that a request is refused for now. While PostgreSQL doesn't answer, being refused at all shows that it didn't
/// wait longer than configured.
fn unavailable(answer: &Answer) {
    problem(answer, 503);
    let seconds = answer.field("retry-after").expect("a time to come again");
    assert!(seconds.parse::<u32>().is_ok_and(|seconds| seconds > 0), "{seconds}");
}

/// How long a client continues: until it is told to stop, or until `end` if the test has failed.
struct Going {
    on: AtomicBool,
    end: Instant,
}

impl Going {
    fn new() -> Self {
        Self { on: AtomicBool::new(true), end: Instant::now() + Duration::from_secs(300) }
    }

    fn on(&self) -> bool {
        self.on.load(Ordering::Relaxed) && Instant::now() < self.end
    }

    fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
    }
}

/// What one of the writing clients has seen.
#[derive(Default)]
struct Writer {
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

impl Writer {
    /// Creates users until told to stop, and returns the ids of those that were acknowledged.
    fn write(&self, number: u32, server: &Server, writing: &Going) -> Vec<String> {
        let mut client = server.connect();
        let mut acknowledged = Vec::new();
        for user_number in 0.. {
            if !writing.on() {
                break;
            }
            let body = user(&format!("w{number}.{user_number}@example.org")).to_string();
            let answer = ask(&mut client, "POST", "/v1/users", "Content-Type: application/json\r\n", &body);
            if answer.status == 201 {
                acknowledged.push(value(&answer)["id"].as_str().expect("an id").to_owned());
                self.accepted.fetch_add(1, Ordering::Relaxed);
            } else {
                unavailable(&answer);
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        acknowledged
    }
}

/// Creates a user, and returns its path. A slow machine may exceed the service's limits.
fn create(server: &Server, name: &str, fields: &str) -> String {
    server.create_eventually(name, fields, unavailable)
}

/// Whether a read was answered; otherwise it was refused for now.
fn is_read(answer: &Answer) -> bool {
    if answer.status != 200 {
        unavailable(answer);
    }
    answer.status == 200
}

fn ready(server: &Server) -> bool {
    ask(&mut Client::connect(server.admin), "GET", "/readyz", "", "").status == 200
}

#[test]
fn under_load_cached_reads_go_on_all_else_is_503_and_nothing_acknowledged_is_lost() {
    let (mut postgres, _place, server) = start(Durability::Machine, &[]);
    let (cached, other) = (create(&server, "cached", ""), create(&server, "other", ""));
    until("the user is cached", || {
        is_read(&server.get(&cached)) && server.metric("linerate_api_cache_hits_total") > 0.0
    });
    until("it is ready", || ready(&server));

    let (reading, writing) = (Going::new(), Going::new());
    let writers: [Writer; 3] = std::array::from_fn(|_| Writer::default());
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let writing_threads: Vec<_> = (0..)
            .zip(&writers)
            .map(|(number, writer)| {
                let (server, writing) = (&server, &writing);
                scope.spawn(move || writer.write(number, server, writing))
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut client = server.connect();
            while reading.on() {
                let answer = ask(&mut client, "GET", &cached, "", "");
                // If the machine gives the service no CPU time for this long, the service does not know whether the
                // cache is current, until it runs again.
                if answer.status != 200 {
                    unavailable(&answer);
                }
            }
        });
        let each = |count: fn(&Writer) -> &AtomicUsize, least: usize| {
            // A thread that has panicked no longer counts; the scope reports it.
            writing_threads.iter().any(|thread| thread.is_finished())
                || writers.iter().all(|writer| count(writer).load(Ordering::Relaxed) >= least)
        };
        until("users are written", || each(|writer| &writer.accepted, 10));
        postgres.stop();
        let begin = Instant::now();
        unavailable(&server.get(&other));
        until("every writer is refused", || each(|writer| &writer.refused, 1));
        assert!(!ready(&server));
        until("cached reads go on past what they may be behind", || {
            begin.elapsed() > STALENESS && server.get(&cached).status == 200
        });
        reading.stop();
        reader.join().expect("cached reads go on");
        writers.iter().for_each(|writer| writer.accepted.store(0, Ordering::Relaxed));
        postgres.resume().expect("PostgreSQL starts again");
        until("users are written again", || each(|writer| &writer.accepted, 10));
        writing.stop();
        writing_threads.into_iter().flat_map(|thread| thread.join().expect("a writer")).collect()
    });
    assert!(acknowledged.len() >= 2 * 10 * writers.len());
    until("what was not cached is read again", || server.get(&other).status == 200);
    until("it is ready again", || ready(&server));
    for ids in acknowledged.chunks(500) {
        let found = wait_for("they are read", || {
            let answer = server.send("POST", "/v1/users:batchGet", "", &json!({ "ids": ids }));
            is_read(&answer).then(|| value(&answer))
        });
        assert_eq!(found["missing"], json!([]));
        assert_eq!(found["users"].as_array().map(Vec::len), Some(ids.len()));
    }
}

/// The URL of an issuer, and a token of it that is for reading.
fn issuer() -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // A private key of Ed25519 is any 32 bytes, after this head (RFC 8410, section 7).
    let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from([&head[..], &[7; 32]].concat())).expect("a key");
    let public = key.public_key().expect("it has one");
    let x = BASE64URL_NOPAD.encode(&public[public.len() - 32..]);
    let keys = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": x }] }).to_string();
    let metadata = json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") }).to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap_or_default();
            let body = if request[..count].starts_with(b"GET /jwks ") { &keys } else { &metadata };
            let length = body.len();
            // A client that has left needs no answer.
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    let claims = json!({ "iss": url, "aud": "api", "sub": "1", "exp": now + 3600, "groups": ["staff"] });
    let signed = format!("{}.{}", part(json!({ "alg": "EdDSA", "kid": "a" })), part(claims));
    let signer = key.choose_scheme(&[SignatureScheme::ED25519]).expect("its own");
    let signature = signer.sign(signed.as_bytes()).expect("it signs");
    (url, format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
}

#[test]
fn whoever_may_read_goes_on_reading_from_the_cache_and_a_key_that_is_unknown_is_503() {
    let (url, token) = issuer();
    let flags = ["--auth", "keys", "--jwt-issuer", &url, "--jwt-audience", "api", "--jwt-read", "staff"];
    let (mut postgres, place, server) = start(Durability::None, &flags);
    let (key, stranger) = (place.key("write", &["--rate", "0"]), Place::new().key("read", &[]));
    let bearer = |key: &str| format!("Authorization: Bearer {key}\r\n");
    let path = create(&server, "a", &bearer(&key));
    let read = |key: &str| server.ask("GET", &path, &bearer(key), "");
    until("the user is cached", || {
        is_read(&read(&key)) && server.metric("linerate_api_cache_hits_total") > 0.0
    });
    postgres.stop();
    let is_said = |answer: &Answer| {
        if answer.status != 200 {
            unavailable(answer);
        }
        answer.field("cache-status").is_some_and(|status| status.ends_with("detail=database-away"))
    };
    until("answers say how old they may be", || is_said(&read(&key)));
    unavailable(&read(&stranger));
    assert!(is_said(&read(&key)), "it is still known");
    assert!(is_said(&read(&token)), "nobody has to be asked for it but its issuer");
}

#[test]
fn counts_that_wait_for_a_lock_leave_connections_to_everything_else() {
    let postgres = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    let place = Place::on(postgres.url("postgres"));
    let bearer = format!("Authorization: Bearer {}\r\n", place.key("write", &["--rate", "0"]));
    // One count waits for the lock for as long as the rest of this takes, and nothing else for long.
    let flags = ["--auth", "keys", "--connections", "2", "--acquire-timeout", "3000"];
    let server = place.serve(&flags);
    let count = || server.ask("GET", "/v1/users:count", &bearer, "");
    assert_eq!(count().status, 200);
    let sql = |sql: &str| postgres.execute("postgres", sql).expect("PostgreSQL answers");
    let sessions = |so: &str| -> u32 {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE {so}");
        sql(&count).trim().parse().expect("a number")
    };
    let mut counting: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        // It is cancelled below.
        let hold = "BEGIN; LOCK TABLE users IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)";
        scope.spawn(|| postgres.execute("postgres", hold).expect_err("it does not end by itself"));
        until("users are locked", || sessions("wait_event = 'PgSleep'") == 1);
        for client in &mut counting {
            client.send(format!("GET /v1/users:count HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"));
        }
        until("a count waits", || sessions("wait_event_type = 'Lock' AND query LIKE 'SELECT%users'") > 0);
        let created =
            server.send("POST", "/v1/keys", &bearer, &json!({ "name": "another", "scope": "read" }));
        let is_ready = ready(&server);
        sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        assert_eq!((created.status, is_ready), (201, true), "{}", created.text());
    });
    let counted = counting.iter_mut().map(|client| client.receive(true).expect("an answer").status);
    let counted: Vec<u16> = counted.collect();
    assert!(counted.contains(&200), "{counted:?}");
    until("users are counted again", || count().status == 200);
}

#[test]
fn a_postgresql_that_hangs_is_not_waited_for_without_end() {
    let (postgres, _place, server) = start(Durability::None, &["--connections", "1"]);
    let path = create(&server, "a", "");
    // Stops all its processes, first the one that starts others. Otherwise new connections would be answered.
    let first = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)";
    let first = postgres.execute("postgres", first).expect("it answers");
    let signal = |signal: &str, to: &str| {
        // The process of a connection that was given up may have ended.
        Command::new("kill").arg(signal).args(to.lines()).status().expect("kill runs");
    };
    signal("-STOP", &first);
    let others = descendants(first.trim().parse().expect("a process"));
    let others = others.iter().map(u32::to_string).collect::<Vec<_>>().join("\n");
    assert!(others.lines().count() > 1, "{others}");
    signal("-STOP", &others);
    // One request waits for the database's answer, the others for a connection.
    thread::scope(|scope| {
        for number in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let body = user(&format!("u{number}@example.org"));
                unavailable(&server.send("POST", "/v1/users", "", &body));
            });
        }
        let (server, path) = (&server, &path);
        scope.spawn(move || {
            until("the cache is not known to be right any more", || {
                let answer = server.get(path);
                if answer.status != 200 {
                    unavailable(&answer);
                }
                answer.status == 503
            });
        });
    });
    signal("-CONT", &others);
    signal("-CONT", &first);
    server.create_eventually("z", "", |_| ());
    until("users are read again", || server.get(&path).status == 200);
}
