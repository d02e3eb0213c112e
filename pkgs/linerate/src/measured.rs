//! Measures the services as they run on this machine, and compares them with an earlier run.
//!
//! The load runs on the same machine, so requests per second depend on the load generator as much as on the service.
//! The comparison therefore uses the CPU time that a request costs the service.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bench::chart::{self, Bar};
use bench::client::Client;
use bench::report::Report;
use bench::rounds::{Case, alternate};
use bench::server::{Placement, Server};
use bench::wrk::{Load, Requests};
use serde::{Deserialize, Serialize};

use crate::system::System;

/// The services that can be measured. Each runs in a process called `linerate-NAME`.
const SERVICES: [&str; 3] = ["links", "files", "api"];

/// A service, and the path to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    service: &'static str,
    authority: String,
    path: String,
}

/// Why a text isn't a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("links=URL, files=URL or api=URL is needed, where URL is http://HOST:PORT/PATH")]
pub struct ParseError;

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, url) = text.split_once('=').ok_or(ParseError)?;
        let service = SERVICES.into_iter().find(|known| *known == name).ok_or(ParseError)?;
        let rest = url.strip_prefix("http://").ok_or(ParseError)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let port = authority.rsplit_once(':').map_or("80", |(_, port)| port);
        if authority.is_empty() || port.parse::<u16>().is_err() || path.contains(char::is_whitespace) {
            return Err(ParseError);
        }
        let authority =
            if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { service, authority, path: path.to_owned() })
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no process with the name, or several.
    #[error("{found} processes are called linerate-{service}: one is needed to be measured")]
    Processes {
        /// The service.
        service: &'static str,
        /// How many processes there are.
        found: usize,
    },
    /// It can't be reached.
    #[error("{service} at {authority}: {source}")]
    Unreachable {
        /// The service.
        service: &'static str,
        /// Its address.
        authority: String,
        /// The reason.
        source: io::Error,
    },
    /// It doesn't answer as it should.
    #[error("{service} answers {path} with {status}: what is measured has to work")]
    Answer {
        /// The service.
        service: &'static str,
        /// The requested path.
        path: String,
        /// The status.
        status: u16,
    },
    /// The load generator or its results.
    #[error(transparent)]
    Bench(#[from] bench::Error),
    /// A file that isn't a saved run.
    #[error("{}: {source}", path.display())]
    Saved {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// A service's cost in the earlier run and now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The service.
    pub service: String,
    /// CPU time per request in the earlier run, in microseconds.
    pub before_us: f64,
    /// CPU time per request now.
    pub now_us: f64,
    /// Whether the difference is insignificant: the rounds of the two runs overlap, or the difference is below the
    /// tolerance.
    pub as_before: bool,
}

impl Change {
    /// Whether a request costs more than before.
    pub fn slower(&self) -> bool {
        !self.as_before && self.now_us > self.before_us
    }
}

/// The part of a saved run that is compared.
#[derive(Debug, Deserialize)]
struct Saved {
    rows: Vec<SavedRow>,
}

#[derive(Debug, Deserialize)]
struct SavedRow {
    server: String,
    case: String,
    cpu_us: f64,
    cpu_us_spread: (f64, f64),
}

/// Loads the targets in turn, in rounds of this many seconds.
pub fn measure(
    system: &dyn System,
    targets: &[Target],
    rounds: usize,
    seconds: u64,
) -> Result<Report, Error> {
    let mut servers = Vec::new();
    for target in targets {
        let (address, status) = reach(target)?;
        servers.push((
            target,
            status,
            Server::running(target.service, address, process(system, target.service)?),
        ));
    }
    let load = Load { threads: 1, connections: 32, seconds };
    let placement = Placement { workers: 0, cpu: None };
    let cases: Vec<Case<'_>> = servers
        .iter()
        .map(|(target, status, server)| {
            let requests = Requests::same(&target.path, *status);
            Case { server, name: "deployed", requests, load, placement }
        })
        .collect();
    let series = alternate(rounds, &cases)?;
    let mut report = Report::new("the machine's own namespace, services as they are deployed");
    let turns = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds in turn") };
    report.condition(format!("load: {load} from the same CPUs, {turns}"));
    for target in targets {
        report.condition(format!("{}: GET http://{}{}", target.service, target.authority, target.path));
    }
    report.add(&series, &[]);
    Ok(report)
}

/// The process of a service. The kernel keeps fifteen characters of a process name, which is enough for these.
fn process(system: &dyn System, service: &'static str) -> Result<u32, Error> {
    let name = format!("linerate-{service}");
    let called = |pid: &u32| system.read(&format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let pids = system.list("/proc").unwrap_or_default().into_iter().filter_map(|pid| pid.parse::<u32>().ok());
    let pids: Vec<u32> = pids.filter(called).collect();
    match pids[..] {
        [pid] => Ok(pid),
        _ => Err(Error::Processes { service, found: pids.len() }),
    }
}

/// A target's address, and the status it answers with.
fn reach(target: &Target) -> Result<(SocketAddr, u16), Error> {
    let Target { service, authority, path } = target;
    let unreachable = |source| Error::Unreachable { service, authority: authority.clone(), source };
    let mut addresses = authority.to_socket_addrs().map_err(unreachable)?;
    let address = addresses.next().ok_or_else(|| unreachable(io::ErrorKind::NotFound.into()))?;
    let status = Client::connect(address).and_then(|mut client| client.status(path)).map_err(unreachable)?;
    if status >= 400 {
        return Err(Error::Answer { service, path: path.clone(), status });
    }
    Ok((address, status))
}

/// Compares with a saved run, service by service. A change of less than `tolerance` percent counts as none: two runs
/// differ more than the rounds of one run, since the load of the rest of the machine varies.
pub fn compare(report: &Report, path: &Path, tolerance: f64) -> Result<Vec<Change>, Error> {
    let saved = saved(path)?;
    let changes = report.rows.iter().filter_map(|row| {
        let then = saved.rows.iter().find(|then| then.server == row.server && then.case == row.case)?;
        let overlap =
            row.cpu_us_spread.0 <= then.cpu_us_spread.1 && then.cpu_us_spread.0 <= row.cpu_us_spread.1;
        let (before_us, now_us) = (then.cpu_us, row.cpu_us);
        let little = (now_us / before_us - 1.0).abs() * 100.0 < tolerance;
        Some(Change { service: row.server.to_owned(), before_us, now_us, as_before: overlap || little })
    });
    Ok(changes.collect())
}

/// Checks that a file is a saved run, before any load is generated.
pub fn check(path: &Path) -> Result<(), Error> {
    saved(path).map(drop)
}

fn saved(path: &Path) -> Result<Saved, Error> {
    let failed = |source| Error::Saved { path: path.to_owned(), source };
    let text = fs::read(path).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| failed(error.into()))
}

/// Draws a bar for each service, below the bar of the earlier run if there is one.
pub fn draw(report: &Report, changes: &[Change], path: &Path) -> Result<(), Error> {
    let mut bars = Vec::new();
    for row in &report.rows {
        if let Some(change) = changes.iter().find(|change| change.service == row.server) {
            let label = format!("{} before", row.server);
            bars.push(Bar { label, cpu_us: change.before_us, ..Bar::default() });
        }
        bars.push(Bar { label: row.server.to_owned(), cpu_us: row.cpu_us, ..Bar::default() });
    }
    Ok(chart::write_bars(path, "CPU time per request", &bars)?)
}

#[cfg(test)]
mod tests {
    use bench::report::Row;

    use super::*;

    #[test]
    fn a_target_is_a_service_and_a_url() {
        let target = |service, authority: &str, path: &str| {
            Ok(Target { service, authority: authority.to_owned(), path: path.to_owned() })
        };
        let cases = [
            ("links=http://127.0.0.1:8080/hello", target("links", "127.0.0.1:8080", "/hello")),
            ("files=http://box", target("files", "box:80", "/")),
            ("api=http://[::1]:80/v1/users?limit=1", target("api", "[::1]:80", "/v1/users?limit=1")),
            ("nginx=http://127.0.0.1/", Err(ParseError)),
            ("links=https://127.0.0.1/", Err(ParseError)),
            ("links=http://:x/", Err(ParseError)),
            ("http://127.0.0.1/", Err(ParseError)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Target>(), expected, "{text}");
        }
    }

    fn row(server: &'static str, cpu_us: f64, spread: (f64, f64)) -> Row {
        Row {
            server,
            case: "deployed",
            qps: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            cpu_us,
            cpu_us_spread: spread,
            user_us: 1.0,
            ratios: Vec::new(),
            resident_bytes: 0,
        }
    }

    #[test]
    fn only_what_is_beyond_the_spread_of_rounds_and_what_is_tolerated_counts_as_slower() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("saved.json");
        let report = |rows| Report { rows, ..Report::default() };
        report(vec![row("links", 2.0, (1.9, 2.1)), row("files", 5.0, (4.9, 5.1))])
            .write(&path)
            .expect("a file");
        let now = report(vec![
            row("links", 2.1, (2.05, 2.2)),
            row("files", 6.0, (5.9, 6.1)),
            row("api", 1.0, (1.0, 1.0)),
        ]);
        let slower = |tolerance| -> Vec<(String, bool)> {
            let changes = compare(&now, &path, tolerance).expect("compared");
            changes.iter().map(|change| (change.service.clone(), change.slower())).collect()
        };
        for (tolerance, files) in [(0.0, true), (19.0, true), (21.0, false)] {
            assert_eq!(slower(tolerance), [("links".to_owned(), false), ("files".to_owned(), files)]);
        }
        let changes = compare(&now, &path, 5.0).expect("compared");
        let chart = directory.path().join("chart.svg");
        draw(&now, &changes, &chart).expect("drawn");
        assert!(fs::read_to_string(chart).expect("a chart").contains("files before"));
        assert!(compare(&now, &directory.path().join("none"), 5.0).is_err());
    }
}
