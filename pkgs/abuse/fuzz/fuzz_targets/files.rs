//! Whole connections to the event loop of files, which runs in this process as it does in the program. The answers are
//! checked against the model of HTTP/1.1.
#![no_main]

use std::fs;
use std::net::SocketAddr;
use std::sync::OnceLock;

use abuse::conversation::Conversation;
use abuse::model::Rules;
use clap::Parser;
use files::cli::{Cli, Command, serve};
use libfuzzer_sys::fuzz_target;
use testkit::own_address;

const RULES: Rules = Rules { head_bytes: 8 * 1024, fields: 64, body_bytes: u64::MAX, bodies_close: true };

const TARGETS: [&str; 9] =
    ["/a", "/b", "/missing", "/directory/", "/directory", "/../a", "/a?b", "http://h/a", "*"];

/// The content of a file. That of `b` is longer than what is sent together with the head.
fn content(name: &str) -> Vec<u8> {
    format!("what is in {name}\n").repeat(if name == "b" { 1000 } else { 1 }).into_bytes()
}

/// The listener's address.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        fs::create_dir(directory.join("directory")).expect("a directory");
        for name in ["a", "b", "loot"] {
            fs::write(directory.join(name), content(name)).expect("a file");
        }
        let public = own_address();
        let (listen, root) = (public.to_string(), directory.to_str().expect("text"));
        let flags =
            ["linerate-files", "serve", "--workers", "1", "--listing", "--root", root, "--listen", &listen];
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("no server") };
        std::thread::spawn(move || serve::run(args).expect("it serves"));
        while std::net::TcpStream::connect(public).is_err() {
            std::thread::yield_now();
        }
        public
    })
}

fuzz_target!(|program: &[u8]| {
    let conversation = Conversation::new(program, &TARGETS);
    let heard = conversation.hold_with(address(), &RULES).expect("the connection ends");
    let held = heard.hold(&conversation.bytes, &RULES, |asked, answer| {
        let name = asked.target.trim_start_matches('/');
        let fits = match (asked.method.as_str(), name) {
            _ if asked.doubtful => true,
            ("GET", "a" | "b") => answer.status != 200 || answer.body == content(name),
            ("GET" | "HEAD", "missing") => answer.status == 404,
            ("GET", "directory/") => answer.status == 200,
            ("POST", _) => answer.status == 405,
            _ => true,
        };
        if fits { Ok(()) } else { Err("another's answer".to_owned()) }
    });
    if let Err(why) = held {
        panic!("{why}\nsent {:?}", String::from_utf8_lossy(&conversation.bytes));
    }
});
