//! What a node reports: its services' readiness, version, generation and errors, and its doctor's findings.

use std::collections::BTreeMap;
use std::thread;

use console::metrics::Metrics;
use serde::Serialize;
use service::problem::Problem;

use super::ask::Asker;
use super::settings::{Base, Node};

/// How many nodes are asked at once.
const AT_ONCE: usize = 32;
/// How long ago the doctor may have looked, in seconds; it looks every minute. Its findings stay in a file when it
/// doesn't run any more.
const MAX_AGE: f64 = 600.0;
/// How many characters are shown of what a node says.
const SHOWN: usize = 200;

/// What a node reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The node's name.
    pub node: String,
    /// The branch it follows.
    pub wave: String,
    /// Its services, by their admin listeners' URLs.
    pub services: BTreeMap<String, Service>,
    /// Its doctor's findings; none if they aren't checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

/// What a service reports, or why it doesn't.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// It answers.
    Reports(Facts),
    /// It doesn't answer, for this reason.
    Silent(String),
}

/// What a service says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// `links`, `files`, `api` or `console`.
    pub service: String,
    /// Its version.
    pub version: String,
    /// Its host's generation; empty if it doesn't know one.
    pub generation: String,
    /// Why it isn't ready, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Requests answered since its start.
    pub requests: f64,
    /// How many of them were answered 5xx.
    pub errors: f64,
}

/// The doctor's findings on the node, or why they aren't known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Machine {
    /// The number of findings of each severity.
    Findings {
        /// Those that keep it from its work.
        critical: f64,
        /// Findings that cost performance.
        warning: f64,
    },
    /// It doesn't say, for this reason.
    Silent(String),
}

impl Report {
    /// The generations that its services report, without duplicates.
    pub fn generations(&self) -> Vec<&str> {
        let mut found: Vec<&str> = self.facts().map(|facts| facts.generation.as_str()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The reports of the services that answer.
    pub fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.services.values().filter_map(|service| match service {
            Service::Reports(facts) => Some(facts),
            Service::Silent(_) => None,
        })
    }
}

/// Asks all nodes; the reports are in the same order.
pub fn ask_all(asker: &Asker, nodes: &[&Node]) -> Vec<Report> {
    let mut reports = Vec::with_capacity(nodes.len());
    for some in nodes.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|node| scope.spawn(|| ask(asker, node))).collect();
            reports.extend(asked.into_iter().map(|one| one.join().expect("asking does not panic")));
        });
    }
    reports
}

fn ask(asker: &Asker, node: &Node) -> Report {
    let services = node.services.iter().map(|base| (base.to_string(), service(asker, base))).collect();
    let machine = node.machine.as_ref().map(|base| machine(asker, base));
    Report { node: node.name.clone(), wave: node.wave.to_string(), services, machine }
}

/// Tries again after a failure, since one lost packet isn't a fault.
fn twice<T>(ask: impl Fn() -> Result<T, String>) -> Result<T, String> {
    ask().or_else(|_| ask())
}

fn service(asker: &Asker, base: &Base) -> Service {
    match twice(|| facts(asker, base)) {
        Ok(facts) => Service::Reports(facts),
        Err(why) => Service::Silent(shown(&why)),
    }
}

fn facts(asker: &Asker, base: &Base) -> Result<Facts, String> {
    let metrics = metrics(asker, base)?;
    let ready = asker.get(&base.join("/readyz"))?;
    let label = |label| metrics.label("linerate_build_info", label).map(shown);
    let service =
        label("service").ok_or("its metrics have no linerate_build_info: is this an admin listener?")?;
    let requests = format!("linerate_{service}_requests_total");
    let not_ready = (ready.status != 200).then(|| {
        let problem = serde_json::from_str::<Problem>(&ready.body).ok();
        shown(&problem.map_or_else(|| format!("/readyz answers {}", ready.status), |problem| problem.detail))
    });
    Ok(Facts {
        version: label("version").unwrap_or_default(),
        generation: label("generation").unwrap_or_default(),
        not_ready,
        requests: metrics.sum(&requests).unwrap_or(0.0),
        errors: metrics
            .sum_where(&requests, |label, value| label != "status" || value.starts_with('5'))
            .unwrap_or(0.0),
        service,
    })
}

fn machine(asker: &Asker, base: &Base) -> Machine {
    let findings = twice(|| {
        let metrics = metrics(asker, base)?;
        let of = |wanted: &str| {
            metrics
                .sum_where("linerate_doctor_findings", |label, value| label != "severity" || value == wanted)
        };
        let known = of("critical").zip(of("warning"));
        let known = known.ok_or_else(|| "its metrics have no linerate_doctor_findings".to_owned())?;
        match age(&metrics) {
            Some(age) if age > MAX_AGE => Err(format!("its doctor has not looked for {age:.0} s")),
            _ => Ok(known),
        }
    });
    match findings {
        Ok((critical, warning)) => Machine::Findings { critical, warning },
        Err(why) => Machine::Silent(shown(&why)),
    }
}

/// How long ago the doctor looked, in seconds, by the node's own clock; none if node_exporter doesn't report the time.
fn age(metrics: &Metrics) -> Option<f64> {
    let (now, looked) =
        metrics.sum("node_time_seconds").zip(metrics.sum("linerate_doctor_look_timestamp_seconds"))?;
    Some(now - looked)
}

fn metrics(asker: &Asker, base: &Base) -> Result<Metrics, String> {
    let answer = asker.get(&base.join("/metrics"))?;
    match answer.status {
        200 => Ok(Metrics::parse(&answer.body)),
        status => Err(format!("/metrics answers {status}")),
    }
}

/// A text from a node, made safe for a terminal.
fn shown(said: &str) -> String {
    said.chars().take(SHOWN).map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}
