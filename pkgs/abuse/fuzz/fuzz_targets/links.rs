//! Whole connections to the public listener of links, which runs in this process as it does in the program. The answers
//! are checked against the model of HTTP/1.1.
#![no_main]

use std::net::SocketAddr;
use std::sync::OnceLock;

use abuse::conversation::Conversation;
use abuse::model::{Body, Rules};
use clap::Parser;
use libfuzzer_sys::fuzz_target;
use links::cli::{Cli, Command, serve};
use links::link::NewLink;
use links::store::{Options, Store};
use testkit::own_address;

const RULES: Rules = Rules { head_bytes: 8 * 1024, fields: 64, body_bytes: 16 * 1024, bodies_close: true };

const TARGETS: [&str; 8] = ["/abc", "/def", "/locked", "/missing", "/abc?x=1", "/%61bc", "http://h/abc", "*"];

/// The listener's address.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let database = directory.join("links.db");
        let database = database.to_str().expect("text");
        fill(database);
        let (public, admin) = (own_address(), own_address());
        let flags = ["linerate-links", "serve", "--workers", "1", "--database", database];
        let (listen, operators) = (public.to_string(), admin.to_string());
        let flags = [&flags[..], &["--listen", &listen, "--admin", &operators]].concat();
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("no server") };
        std::thread::spawn(move || serve::run(*args, false).expect("it serves"));
        while std::net::TcpStream::connect(public).is_err() {
            std::thread::yield_now();
        }
        public
    })
}

fn fill(database: &str) {
    let store = Store::open(Options::new(database.as_ref())).expect("a new database");
    for code in ["abc", "def", "locked"] {
        let target = format!("https://t.example/{code}");
        let password = (code == "locked").then(|| "open sesame".to_owned());
        let link = NewLink { code: Some(code.to_owned()), target, password, ..NewLink::default() };
        store.create(link, None).wait().expect("a valid link");
    }
    store.close();
}

fuzz_target!(|program: &[u8]| {
    let conversation = Conversation::new(program, &TARGETS);
    let heard = conversation.hold_with(address(), &RULES).expect("the connection ends");
    let held = heard.hold(&conversation.bytes, &RULES, |asked, answer| {
        let plain = !asked.doubtful && asked.body == Body::None && asked.method != "POST";
        let code = asked.target[1..].split('?').next().unwrap_or_default();
        let fits = match code {
            _ if !plain => true,
            "abc" | "def" => answer.field("location") == Some(&format!("https://t.example/{code}")),
            "locked" => answer.status == 200 || answer.status == 401,
            "missing" => answer.status == 404,
            _ => true,
        };
        if fits { Ok(()) } else { Err("another's answer".to_owned()) }
    });
    if let Err(why) = held {
        panic!("{why}\nsent {:?}", String::from_utf8_lossy(&conversation.bytes));
    }
});
