//! Findings as Prometheus metrics, for node_exporter's textfile collector.

use std::path::Path;
use std::{fs, io};

use service::metrics::{Family, Registry, encode};

use super::{Finding, RULES, Severity};

/// The text of a scrape.
pub fn text(findings: &[Finding], now: u64) -> String {
    let mut registry = Registry::default();
    let count = |severity: Severity| findings.iter().filter(|one| one.severity == severity).count() as f64;
    let mut counts = Family::new("linerate_doctor_findings", "What is not as it should be, by how bad it is");
    for severity in [Severity::Notice, Severity::Warning, Severity::Critical] {
        let count = count(severity);
        counts = counts.with(&[("severity", &severity.to_string())], move || count);
    }
    counts.register(&mut registry);
    let mut rules = Family::new("linerate_doctor_rule_findings", "What is not as it should be, by rule");
    for rule in RULES {
        let count = findings.iter().filter(|one| one.rule == rule.name).count() as f64;
        rules = rules.with(&[("rule", rule.name)], move || count);
    }
    rules.register(&mut registry);
    if !findings.is_empty() {
        let mut each = Family::new(
            "linerate_doctor_finding",
            "One thing that is not as it should be: the share of work it touches, 1 where that is not measured",
        );
        for one in findings {
            let effect = one.effect.unwrap_or(1.0);
            let severity = one.severity.to_string();
            let labels = [("rule", one.rule), ("of", one.subject.as_str()), ("severity", severity.as_str())];
            each = each.with(&labels, move || effect);
        }
        each.register(&mut registry);
    }
    Family::new("linerate_doctor_look_timestamp_seconds", "When it was looked, since 1970")
        .with(&[], move || now as f64)
        .register(&mut registry);
    encode(&registry)
}

/// Replaces the file atomically, so that readers see either the old or the new one.
pub fn write(path: &Path, findings: &[Finding], now: u64) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text(findings, now))?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_shown_and_every_finding() {
        let finding = Finding { rule: "sysctl", ..Finding::drift("net.core.somaxconn", 1, 2).effect(0.5) };
        let text = text(&[finding], 1_700_000_000);
        for line in [
            "linerate_doctor_findings{severity=\"warning\"} 1.0",
            "linerate_doctor_rule_findings{rule=\"sysctl\"} 1.0",
            "linerate_doctor_rule_findings{rule=\"disk\"} 0.0",
            "linerate_doctor_finding{rule=\"sysctl\",of=\"net.core.somaxconn\",severity=\"warning\"} 0.5",
            "linerate_doctor_look_timestamp_seconds 1700000000.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
