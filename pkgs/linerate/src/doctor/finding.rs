//! The findings of rules.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Work is slowed or lost, or will be under load.
    Warning,
    /// The machine does not do its job.
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
    /// The rule that found it.
    pub rule: &'static str,
    /// The subject: a setting, an interface, a service.
    pub subject: String,
    /// How bad it is.
    pub severity: Severity,
    /// The expected state, if the profile has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The actual state.
    pub found: String,
    /// What it costs.
    pub cost: String,
    /// The command that fixes it, or one that shows more if no command fixes it. Other advice follows as a shell
    /// comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The affected share of the work, from 0 to 1, if it was measured: the share of packets that were lost, or of time
    /// that was spent waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    /// When it was first seen, in seconds since 1970. It may be older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// How often it has begun since checks have been recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl Finding {
    /// A deviation from the profile: a warning.
    pub fn drift(subject: impl Into<String>, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self { expected: Some(expected.to_string()), ..Self::symptom(subject, found) }
    }

    /// A problem that doesn't depend on the profile: a warning.
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

    /// Sets the severity.
    pub fn severity(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }

    /// Sets the cost, if it isn't the one that the rule states.
    pub fn cost(self, cost: impl Into<String>) -> Self {
        Self { cost: cost.into(), ..self }
    }

    /// Sets the remedy.
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Sets the affected share of the work.
    pub fn effect(self, share: f64) -> Self {
        Self { effect: Some(share.clamp(0.0, 1.0)), ..self }
    }
}

/// Worst first; among equals, the largest share of the work first.
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
