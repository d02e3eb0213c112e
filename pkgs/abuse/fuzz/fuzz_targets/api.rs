//! Whole connections to the public listener of the API, which runs in this process as it does in the program. The
//! answers are checked against the model of HTTP/1.1.
#![no_main]

use std::net::SocketAddr;
use std::sync::OnceLock;

use abuse::conversation::Conversation;
use abuse::model::{Body, Rules};
use api::cli::{Cli, Command, serve};
use clap::Parser;
use libfuzzer_sys::fuzz_target;
use testkit::own_address;

const RULES: Rules = Rules { head_bytes: 16 * 1024, fields: 100, body_bytes: u64::MAX, bodies_close: true };

const TARGETS: [&str; 7] =
    ["/openapi.json", "/v1/users", "/v1/users:validate", "/v1/users:count", "/missing", "http://h/", "*"];

/// The listener's address.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let database = format!("sqlite:{}", directory.join("users.db").display());
        let public = own_address();
        let listen = public.to_string();
        let flags =
            ["linerate-api", "serve", "--workers", "1", "--database-url", &database, "--listen", &listen];
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("no server") };
        std::thread::spawn(move || serve::run(args).expect("it serves"));
        while std::net::TcpStream::connect(public).is_err() {
            std::thread::yield_now();
        }
        public
    })
}

/// Whether a server without keys accepts this `Host`. None if that isn't obvious.
fn is_local(host: &str) -> Option<bool> {
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    match name.to_ascii_lowercase().as_str() {
        "localhost" if port.is_empty() || port == "80" => Some(true),
        other if !other.contains('.') && port.is_empty() => Some(false),
        _ => None,
    }
}

fuzz_target!(|program: &[u8]| {
    let conversation = Conversation::new(program, &TARGETS);
    let heard = conversation.hold_with(address(), &RULES).expect("the connection ends");
    let held = heard.hold(&conversation.bytes, &RULES, |asked, answer| {
        let plain = !asked.doubtful && asked.body == Body::None && asked.method == "GET";
        let described = answer.body.windows(9).any(|text| text == b"\"openapi\"");
        let local = is_local(&asked.host);
        let fits = match asked.target.as_str() {
            _ if plain && local == Some(false) => answer.status == 403,
            _ if plain && local.is_none() && answer.status == 403 => true,
            "/openapi.json" if plain && asked.picky && answer.status == 406 => true,
            "/openapi.json" if plain => answer.status == 200 && described,
            "/missing" if plain => answer.status == 404,
            "/openapi.json" => true,
            _ => !described,
        };
        if fits { Ok(()) } else { Err("another's answer".to_owned()) }
    });
    if let Err(why) = held {
        panic!("{why}\nsent {:?}", String::from_utf8_lossy(&conversation.bytes));
    }
});
