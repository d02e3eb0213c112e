//! h2spec itself: other tests include this file too.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use crate::tools;

/// Cases in h2spec 2.2.1.
pub const CASES: u32 = 146;

/// The suite with a case that opens more streams than allowed at once. Whether it does depends on how soon they are
/// answered, so it has a separate run, with requests that are answered late.
pub const CONCURRENCY: &str = "http2/5.1.2";

/// Runs suites, all if none are given, with requests for `path`; returns how many cases there were and which suites had
/// any that failed or were skipped.
pub fn run(address: SocketAddr, flags: &[&str], path: &str, suites: &[&str]) -> (u32, Vec<String>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let report = directory.path().join("report.xml");
    let output = Command::new(h2spec())
        .args(["--strict", "--timeout", "5", "--host", "127.0.0.1", "--path", path, "--port"])
        .arg(address.port().to_string())
        .args(flags)
        .arg("--junit-report")
        .arg(&report)
        .args(suites)
        .output()
        .expect("h2spec runs");
    let report = fs::read_to_string(report).expect("h2spec reports");
    let (mut cases, mut failed) = (0, Vec::new());
    for suite in report.lines().filter_map(|line| line.trim().strip_prefix("<testsuite ")) {
        let attribute = |name: &str| {
            let (_, rest) = suite.split_once(&format!(" {name}=\"")).expect("an attribute");
            rest.split_once('"').expect("its end").0
        };
        let count = |name| attribute(name).parse::<u32>().expect("a number");
        cases += count("tests");
        for _ in 0..count("skipped") + count("failures") + count("errors") {
            failed.push(attribute("package").to_owned());
        }
    }
    if failed.iter().any(|suite| suite != CONCURRENCY) {
        println!("{}", String::from_utf8_lossy(&output.stdout));
    }
    (cases, failed)
}

/// h2spec, in the version that `h2spec/go.mod` pins.
fn h2spec() -> PathBuf {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../listener/tests/interop/h2spec");
    let directory = tools::kept("h2spec", include_str!("h2spec/go.mod"), |directory| {
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(directory.join("h2spec")).arg("github.com/summerwind/h2spec/cmd/h2spec");
        tools::run(go.current_dir(module));
    });
    directory.join("h2spec")
}
