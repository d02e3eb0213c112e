//! What rules cost when they apply: the same small file without any rule, and with each.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bench::Error;
use bench::report::Report;
use bench::rounds::median;
use bench::server::{Placement, Server};
use bench::wrk::{self, Requests};
use comfy_table::{CellAlignment, Table, presets};

use crate::network::Network;
use crate::peers::{BINARY, PLACEMENT};
use crate::{CONNECTIONS, OURS, Scale};

/// The case that the others are compared with.
const NONE: &str = "no rule";

/// One row: its name, the path and header of its requests, and the status.
struct Case {
    name: &'static str,
    target: String,
    field: Option<(&'static str, String)>,
    status: u16,
}

/// Measures all of them in turn.
pub fn measure(scale: Scale, scratch: &Path, report: &mut Report) -> Result<(), Error> {
    let place = tempfile::tempdir_in(scratch)?;
    let root = place.path().join("root");
    for directory in ["plain", "private", "signed", "coded"] {
        fs::create_dir_all(root.join(directory))?;
        fs::write(root.join(directory).join("a.html"), "<p>some text\n".repeat(160))?;
    }
    let key = place.path().join("key");
    fs::write(&key, "k".repeat(32))?;
    let hash = own(&["password"], "secret\n")?;
    let rules = place.path().join("rules.toml");
    fs::write(
        &rules,
        format!(
            "[realm.r]\nusers = {{ a = '{}' }}\n[key.k]\nfile = 'key'\n[[rule]]\npath = '/old/*'\nredirect = '/new/$1'\n\
             [[rule]]\npath = '/private/*'\nauth = 'r'\n[[rule]]\npath = '/signed/*'\nsigned = 'k'\n\
             [[rule]]\npath = '/coded/*'\ncompress = true\n",
            hash.trim()
        ),
    )?;
    let key = key.to_string_lossy();
    let signed = own(&["sign", "--key", &key, "--for", "86400", "http://h/signed/a.html"], "")?;
    let signed = signed.trim().trim_start_matches("http://h").to_owned();
    let password = format!("Basic {}", BASE64_STANDARD.encode("a:secret"));
    let plain = || "/plain/a.html".to_owned();
    let cases = [
        Case { name: NONE, target: plain(), field: None, status: 200 },
        Case { name: "rules for other paths", target: plain(), field: None, status: 200 },
        Case { name: "redirect", target: "/old/a".to_owned(), field: None, status: 301 },
        Case {
            name: "password, known",
            target: "/private/a.html".to_owned(),
            field: Some(("authorization", password)),
            status: 200,
        },
        Case { name: "signed URL", target: signed, field: None, status: 200 },
        Case {
            name: "coding made, zstd",
            target: "/coded/a.html".to_owned(),
            field: Some(("accept-encoding", "zstd".to_owned())),
            status: 200,
        },
    ];
    let network = Network::loopback();
    let bare = served(&network, &root, None)?;
    let ruled = served(&network, &root, Some(&rules))?;
    // Each is requested once first: this checks a password, and makes a coding. Many passwords at once would be too
    // many attempts.
    cases.iter().try_for_each(|case| ask_once(&ruled, case))?;
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for round in 0..=scale.rounds {
        for (case, samples) in cases.iter().zip(&mut samples) {
            let server = if case.name == NONE { &bare } else { &ruled };
            let before = server.usage()?.cpu();
            let requests = asked(server, case, if round == 0 { 1.0 } else { scale.seconds })?;
            let cpu = (server.usage()?.cpu() - before).as_secs_f64();
            // The first round warms up.
            if round > 0 {
                samples.push(cpu * 1e6 / requests as f64);
            }
        }
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["2 KB of HTML", "CPU µs/request", "over no rule"]);
    let costs: Vec<f64> = samples.iter().map(|samples| median(samples.iter().copied())).collect();
    for ((case, cost), own) in cases.iter().zip(&costs).zip(&samples) {
        let over = median(own.iter().zip(&samples[0]).map(|(own, none)| own - none));
        table.add_row([case.name.to_owned(), format!("{cost:.2}"), format!("{over:+.2}")]);
        report.figure(format!("{}: CPU of a request", case.name), *cost, "µs");
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    println!("\nrules\n{table}");
    Ok(())
}

fn served(network: &Network, root: &Path, rules: Option<&Path>) -> Result<Server, Error> {
    let address = network.address()?;
    let mut command = PLACEMENT.command(BINARY);
    command.args(["serve", "--workers", "1", "--listen", &address.to_string(), "--root"]).arg(root);
    if let Some(rules) = rules {
        command.arg("--rules").arg(rules);
    }
    Server::start(OURS, address, &mut command)
}

/// wrk, which repeats the same request. Returns how often.
fn asked(server: &Server, case: &Case, seconds: f64) -> Result<u64, Error> {
    let field = case.field.as_ref().map(|(name, value)| format!("wrk.headers['{name}'] = '{value}'\n"));
    let requests = Requests::scripted(&case.target, field.unwrap_or_default(), case.status);
    // wrk counts in whole seconds.
    let load = wrk::Load { threads: 1, connections: CONNECTIONS, seconds: (seconds.round() as u64).max(1) };
    Ok(load.run(server, Placement { workers: 1, cpu: Some(1) }, case.name, &requests)?.requests)
}

/// Sends the request once, and waits for the answer.
fn ask_once(server: &Server, case: &Case) -> Result<(), Error> {
    let mut stream = TcpStream::connect(server.address())?;
    let field = case.field.as_ref().map(|(name, value)| format!("{name}: {value}\r\n"));
    let field = field.unwrap_or_default();
    write!(stream, "GET {} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{field}\r\n", case.target)?;
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(())
}

/// What one of our commands prints.
fn own(arguments: &[&str], input: &str) -> Result<String, Error> {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().expect("a pipe").write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(format!("{arguments:?}: {}", output.status)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
