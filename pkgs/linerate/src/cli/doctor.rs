//! `doctor`: finds what keeps the machine from its line rate.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{Context, Error, Output};
use crate::doctor::since::{self, Since};
use crate::doctor::{self, Diagnosis, Finding, RULES, Severity, textfile};
use crate::profile::Profile;

/// What to compare with, and how to report.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The profile that the machine's image was built with. Without one, only what is wrong on any machine is found.
    #[arg(long, value_name = "FILE", env = "LINERATE_PROFILE")]
    pub profile: Option<PathBuf>,

    /// Exit with 3 if a finding is at least this bad. A boot is good if nothing is critical, such as a service that is
    /// not ready or a full disk.
    #[arg(long, value_name = "SEVERITY", default_value = "warning")]
    pub fail_on: Severity,

    /// How long to watch counters for current losses, in seconds; 0 reports the losses since boot.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=86400))]
    pub interval: u64,

    /// Check repeatedly, and print which findings begin and end. --interval is then the time between checks; use 10 or
    /// more.
    #[arg(long)]
    pub watch: bool,

    /// With --watch: end after this many checks.
    #[arg(long, value_name = "N", requires = "watch")]
    pub looks: Option<u64>,

    /// Write the findings to this file in Prometheus's format, for node_exporter's textfile collector (NAME.prom).
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,

    /// Where to remember since when each finding exists. Default: /run/linerate-doctor; nowhere with --machine.
    #[arg(long, value_name = "DIR", env = "LINERATE_DOCTOR_STATE")]
    pub state: Option<PathBuf>,
}

/// The findings, for programs.
#[derive(Debug, Serialize)]
struct Examined {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// The time of the check, in seconds since 1970.
    at: u64,
    rules: usize,
    /// Rules that have nothing to compare the machine with.
    idle: Vec<&'static str>,
    /// Rules that could not read everything, and what was refused.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    denied: BTreeMap<&'static str, String>,
    findings: Vec<Finding>,
}

/// Checks the machine.
pub fn run(args: &Args, context: &mut Context) -> Result<(), Error> {
    if args.watch && args.interval == 0 {
        return Err(Error::NoPause);
    }
    let profile = match &args.profile {
        Some(path) => read(path.clone())?,
        None => Profile::default(),
    };
    let mut noted = match &args.state {
        Some(directory) => Since::load(directory),
        None if context.rehearsal => Since::default(),
        None => Since::load(since::DIRECTORY.as_ref()),
    };
    if !args.watch {
        let Diagnosis { findings, idle, denied } = look(args, context, &profile, &mut noted)?;
        let bad = findings.iter().filter(|finding| finding.severity >= args.fail_on).count();
        let how = ReportOptions { explain: context.explain, profile: args.profile.is_some() };
        let denied = denied.into_iter().collect();
        let examined = Examined { host: profile.host, at: now(), rules: RULES.len(), idle, denied, findings };
        context.output.show(&examined, |examined, output| print(examined, &how, output))?;
        return if bad == 0 { Ok(()) } else { Err(Error::Unwell(bad)) };
    }
    let mut before: Vec<Finding> = Vec::new();
    for number in 0.. {
        if args.looks == Some(number) {
            break;
        }
        let Diagnosis { findings, idle, denied } = look(args, context, &profile, &mut noted)?;
        let how = ReportOptions { explain: context.explain, profile: args.profile.is_some() };
        let (host, denied) = (profile.host.clone(), denied.into_iter().collect());
        let examined = Examined { host, at: now(), rules: RULES.len(), idle, denied, findings };
        context.output.show(&examined, |examined, output| {
            changes(&before, &examined.findings, output)?;
            if number == 0 {
                if examined.findings.is_empty() {
                    output.line(nothing_found(examined))?;
                }
                left_out(examined, &how, output)?;
            }
            Ok(())
        })?;
        context.output.flush()?;
        before = examined.findings;
    }
    Ok(())
}

/// Checks once, and records the result.
fn look(args: &Args, context: &Context, profile: &Profile, since: &mut Since) -> Result<Diagnosis, Error> {
    let mut diagnosis = doctor::diagnose(&*context.system, profile, args.interval);
    since.note(&mut diagnosis.findings, now());
    // Users other than root may check too, but may not save. For them, every check is the first one.
    drop(since.save());
    if let Some(path) = &args.textfile {
        textfile::write(path, &diagnosis.findings, now())
            .map_err(|source| Error::File { path: path.clone(), source })?;
    }
    Ok(diagnosis)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

pub(super) fn read(path: PathBuf) -> Result<Profile, Error> {
    let text = fs::read_to_string(&path).map_err(|source| Error::File { path: path.clone(), source })?;
    text.parse().map_err(|source| Error::Profile { path, source })
}

/// Prints which findings begin and end.
fn changes(before: &[Finding], after: &[Finding], output: &mut Output) -> Result<(), Error> {
    let same = |a: &Finding, b: &Finding| a.rule == b.rule && a.subject == b.subject;
    for finding in after.iter().filter(|one| !before.iter().any(|other| same(one, other))) {
        let Finding { severity, rule, subject, found, .. } = finding;
        output.line(format_args!("+ {severity} {rule} {subject}: {found}"))?;
    }
    for finding in before.iter().filter(|one| !after.iter().any(|other| same(one, other))) {
        output.line(format_args!("- {} {}: well again", finding.rule, finding.subject))?;
    }
    Ok(())
}

/// How to report findings.
struct ReportOptions {
    explain: bool,
    /// Whether there is a profile.
    profile: bool,
}

/// The text if there are no findings. All is well only if every rule could check everything.
fn nothing_found(examined: &Examined) -> String {
    let Examined { rules, idle, .. } = examined;
    match idle.len() {
        0 => format!("All is well: {rules} rules looked at."),
        idle => format!("Nothing found: {} of {rules} rules looked at.", rules - idle),
    }
}

/// Names the rules that had nothing to compare with, and those that couldn't read everything.
fn left_out(examined: &Examined, how: &ReportOptions, output: &mut Output) -> Result<(), Error> {
    for (rule, what) in &examined.denied {
        output.line(format_args!("Not all was seen by {rule}: {what}: permission denied, root may."))?;
    }
    let names = examined.idle.join(", ");
    match (examined.idle.is_empty(), how.profile) {
        (true, _) => Ok(()),
        (false, false) => {
            output.line(format_args!("Not looked at without a profile (--profile FILE): {names}."))
        }
        (false, true) => {
            output.line(format_args!("Not looked at, since the profile has nothing of it: {names}."))
        }
    }
}

/// Prints the findings for people, worst first.
fn print(examined: &Examined, how: &ReportOptions, output: &mut Output) -> Result<(), Error> {
    let Examined { findings, rules, idle, at, .. } = examined;
    for finding in findings {
        let Finding { severity, rule, subject, expected, found, cost, remedy, effect, since, times } =
            finding;
        let effect = effect.map_or_else(String::new, |share| format!(", {:.2} % of the work", share * 100.0));
        output.line(format_args!("{severity} {rule}: {subject}{effect}"))?;
        let expected =
            expected.as_ref().map_or_else(String::new, |expected| format!(", should be {expected}"));
        let since = since.map_or_else(String::new, |since| match at.saturating_sub(since) {
            0 => String::new(),
            seconds => format!(", for {} now", duration(seconds)),
        });
        let times = times.filter(|times| *times > 1);
        let times = times.map_or_else(String::new, |times| format!(", time {times} of it"));
        output.line(format_args!("    is {found}{expected}{since}{times}"))?;
        output.line(format_args!("    costs: {cost}"))?;
        if let Some(remedy) = remedy {
            output.line(format_args!("    mend: {remedy}"))?;
        }
    }
    let count = |severity: Severity, one: &str, more: &str| {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
        format!("{count} {}", if count == 1 { one } else { more })
    };
    output.line(match (findings.len(), idle.len()) {
        (0, _) => nothing_found(examined),
        (_, others) => format!(
            "{}, {}, {}; {}{rules} rules looked at.",
            count(Severity::Critical, "critical", "critical"),
            count(Severity::Warning, "warning", "warnings"),
            count(Severity::Notice, "notice", "notices"),
            if others == 0 { String::new() } else { format!("{} of ", rules - others) },
        ),
    })?;
    left_out(examined, how, output)?;
    if how.explain {
        output.line("")?;
        let row = |rule: &doctor::Rule| [rule.name, rule.about, rule.source].map(str::to_owned);
        output.table(["RULE", "LOOKS WHETHER", "SOURCE"], RULES.iter().map(row))?;
    }
    Ok(())
}

/// `3 d`, `2 h`, `5 min` or `9 s`, in the largest unit that is not zero.
fn duration(seconds: u64) -> String {
    let units = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let (size, name) = units.into_iter().find(|(size, _)| seconds >= *size).unwrap_or((1, "s"));
    format!("{} {name}", seconds / size)
}
