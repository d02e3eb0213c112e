//! What a rule has found.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Work is slowed or lost, or will be under load.
    Warning,
    /// The machine does not do what it is there for.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// By which rule.
    pub rule: &'static str,
    /// What is meant: a setting, an interface, a service.
    pub subject: String,
    /// How bad it is.
    pub severity: Severity,
    /// How it should be, where the profile says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// How it is.
    pub found: String,
    /// What it costs.
    pub cost: String,
    /// The command that mends it, or that tells more where none does; what else to do is a comment behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Which share of the work it touches, from 0 to 1, where that is measured: packets lost of packets that came,
    /// time waited of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    /// When it was first seen, in seconds since 1970; the machine may have been so before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// How often it has begun since looks are noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl Finding {
    /// Something that drifted from the profile: a warning.
    pub fn drift(subject: impl Into<String>, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self { expected: Some(expected.to_string()), ..Self::symptom(subject, found) }
    }

    /// Something that is seen whatever the profile says: a warning.
    pub fn symptom(subject: impl Into<String>, found: impl fmt::Display) -> Self {
        Self {
            rule: "",
            subject: subject.into(),
            severity: Severity::Warning,
            expected: None,
            found: found.to_string(),
            cost: String::new(),
            remedy: None,
            effect: None,
            since: None,
            times: None,
        }
    }

    /// With how bad it is.
    pub fn severity(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }

    /// With what it costs, where that is something else than the rule says.
    pub fn cost(self, cost: impl Into<String>) -> Self {
        Self { cost: cost.into(), ..self }
    }

    /// With what mends it.
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// With the share of the work that it touches.
    pub fn effect(self, share: f64) -> Self {
        Self { effect: Some(share.clamp(0.0, 1.0)), ..self }
    }
}

/// Worst first; of the equally bad, what touches most of the work.
pub fn rank(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let effect = |finding: &Finding| finding.effect.unwrap_or(0.0);
        b.severity
            .cmp(&a.severity)
            .then_with(|| effect(b).total_cmp(&effect(a)))
            .then_with(|| (a.rule, &a.subject).cmp(&(b.rule, &b.subject)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_then_what_touches_most() {
        let mut findings = [
            Finding::symptom("c", "").severity(Severity::Notice).effect(0.9),
            Finding::symptom("b", ""),
            Finding::symptom("a", ""),
            Finding::symptom("d", "").effect(0.1),
            Finding::symptom("e", "").severity(Severity::Critical),
        ];
        rank(&mut findings);
        let order: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(order, ["e", "d", "a", "b", "c"]);
    }
}
