//! Whole connections to the admin listener of each service, which runs in this process as it does in the programs. The
//! first byte selects the service. The answers are checked against the model of HTTP/1.1.
#![no_main]

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::OnceLock;

use abuse::conversation::Conversation;
use abuse::model::{Body, Rules};
use clap::Parser;
use libfuzzer_sys::fuzz_target;
use testkit::own_address;

const RULES: Rules = Rules { head_bytes: 16 * 1024, fields: 100, body_bytes: u64::MAX, bodies_close: true };

const TARGETS: [&str; 6] = ["/healthz", "/readyz", "/metrics", "/missing", "/healthz?a=b", "*"];

/// An admin listener.
#[derive(Clone, Copy)]
struct Admin {
    address: SocketAddr,
    rules: Rules,
}

/// Starts a service with these flags, and waits for its admin listener.
fn start(rules: Rules, own: [&str; 2], serve: impl FnOnce(Vec<String>) + Send + 'static) -> Admin {
    let (public, address) = (own_address().to_string(), own_address());
    let admin = address.to_string();
    let flags =
        ["linerate", "serve", "--workers", "1", "--listen", &public, "--admin", &admin, own[0], own[1]];
    let flags = flags.map(str::to_owned).to_vec();
    std::thread::spawn(move || serve(flags));
    while TcpStream::connect(address).is_err() {
        std::thread::yield_now();
    }
    Admin { address, rules }
}

fn links(directory: &Path) -> Admin {
    use links::cli::{Cli, Command, serve};
    let database = directory.join("links.db");
    // The same limit as in `links::admin`.
    let rules = Rules { head_bytes: 32 * 1024, ..RULES };
    start(rules, ["--database", database.to_str().expect("text")], |flags| {
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("no server") };
        serve::run(*args, false).expect("it serves");
    })
}

fn api(directory: &Path) -> Admin {
    use api::cli::{Cli, Command, serve};
    let database = format!("sqlite:{}", directory.join("users.db").display());
    start(RULES, ["--database-url", &database], |flags| {
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("no server") };
        serve::run(args).expect("it serves");
    })
}

fn files(directory: &Path) -> Admin {
    use files::cli::{Cli, Command, serve};
    start(RULES, ["--root", directory.to_str().expect("text")], |flags| {
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("no server") };
        serve::run(args).expect("it serves");
    })
}

/// The admin listener of the service with this number.
fn admin(which: u8) -> Admin {
    static ADMINS: OnceLock<[Admin; 3]> = OnceLock::new();
    let admins = ADMINS.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        [links(&directory), api(&directory), files(&directory)]
    });
    admins[usize::from(which) % admins.len()]
}

fuzz_target!(|program: &[u8]| {
    let Some((which, program)) = program.split_first() else { return };
    let Admin { address, rules } = admin(*which);
    let conversation = Conversation::new(program, &TARGETS);
    let heard = conversation.hold_with(address, &rules).expect("the connection ends");
    let held = heard.hold(&conversation.bytes, &rules, |asked, answer| {
        let plain = !asked.doubtful && asked.body == Body::None && asked.method == "GET";
        let counts = answer.body.starts_with(b"# HELP ");
        let fits = match asked.target.as_str() {
            _ if !plain => true,
            "/healthz" | "/healthz?a=b" => answer.status == 200 && !counts,
            // The service may not be ready yet.
            "/readyz" => matches!(answer.status, 200 | 503) && !counts,
            "/metrics" => answer.status == 200 && counts,
            "/missing" => answer.status == 404,
            _ => !counts,
        };
        if fits { Ok(()) } else { Err("another's answer".to_owned()) }
    });
    if let Err(why) = held {
        panic!("{why}\nsent {:?}", String::from_utf8_lossy(&conversation.bytes));
    }
});
