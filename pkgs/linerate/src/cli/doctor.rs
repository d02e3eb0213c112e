//! `doctor`: what keeps the machine from its line rate.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use super::{Context, Error, Output};
use crate::doctor::{self, Finding, Look, RULES, Severity};
use crate::profile::Profile;

/// What to compare with.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The profile that the machine's image was built with; without one only what is wrong on any machine is found.
    #[arg(long, value_name = "FILE", env = "LINERATE_PROFILE")]
    pub profile: Option<PathBuf>,

    /// End with code 3 where something is at least so bad. A boot is good where nothing is critical: a service that
    /// is not ready, a disk that is full.
    #[arg(long, value_name = "SEVERITY", default_value = "warning")]
    pub fail_on: Severity,
}

/// What was found, as programs get it.
#[derive(Debug, Serialize)]
struct Examined {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    rules: usize,
    findings: Vec<Finding>,
}

/// Examines the machine.
pub fn run(args: &Args, context: &mut Context) -> Result<(), Error> {
    let profile = match &args.profile {
        Some(path) => read(path.clone())?,
        None => Profile::default(),
    };
    let findings = doctor::examine(&Look { system: &*context.system, profile: &profile });
    let bad = findings.iter().filter(|finding| finding.severity >= args.fail_on).count();
    let explain = context.explain;
    let examined = Examined { host: profile.host, rules: RULES.len(), findings };
    context.output.show(&examined, |examined, output| print(examined, explain, output))?;
    if bad == 0 { Ok(()) } else { Err(Error::Unwell(bad)) }
}

fn read(path: PathBuf) -> Result<Profile, Error> {
    let text = fs::read_to_string(&path).map_err(|source| Error::File { path: path.clone(), source })?;
    text.parse().map_err(|source| Error::Profile { path, source })
}

/// Prints what was found for people.
fn print(examined: &Examined, explain: bool, output: &mut Output) -> Result<(), Error> {
    let Examined { findings, rules, .. } = examined;
    if findings.is_empty() {
        output.line(format_args!("All is well: {rules} rules looked at."))?;
    } else {
        let row = |one: &Finding| {
            let expected = one.expected.clone().unwrap_or_else(|| "-".to_owned());
            [one.severity.to_string(), one.rule.to_owned(), one.subject.clone(), one.found.clone(), expected]
        };
        output.table(["SEVERITY", "RULE", "OF", "FOUND", "EXPECTED"], findings.iter().map(row))?;
        output.line("")?;
        for Finding { subject, cost, remedy, .. } in findings {
            output.line(format_args!("{subject}: {cost}"))?;
            if let Some(remedy) = remedy {
                output.line(format_args!("    {remedy}"))?;
            }
        }
    }
    if explain {
        output.line("")?;
        let row = |rule: &doctor::Rule| [rule.name, rule.about, rule.source].map(str::to_owned);
        output.table(["RULE", "LOOKS WHETHER", "SOURCE"], RULES.iter().map(row))?;
    }
    Ok(())
}
