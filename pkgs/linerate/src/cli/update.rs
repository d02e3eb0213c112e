//! `update`: updates the image from one version to another.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use service::exit;

use super::{Context, Error, Output};
use crate::update::{Appliance, Applied, SETTINGS, Saved, Settings, Status, Trial, Version};

/// Commands for versions.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Ask the server for a newer version, and check its signature; changes nothing.
    Check(CheckArgs),
    /// Write the newest version to the slot that is not running. It is on trial from the next boot on, unless the image
    /// was built without trials; if it is unhealthy, the box returns to the version that runs now.
    Apply(ApplyArgs),
    /// Show which version runs, and what is in the slots.
    Status(Args),
    /// Take back an update that has not been healthy yet, or that nobody tried; or else boot the other slot's version
    /// from the next boot on, and mark the running one as failed.
    Rollback(RollbackArgs),
}

/// The box.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The settings of the image's build.
    #[arg(long, value_name = "FILE", env = "LINERATE_UPDATE_SETTINGS", default_value = SETTINGS)]
    pub settings: PathBuf,
}

/// The timeout.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// How long the server may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,

    /// The box.
    #[command(flatten)]
    pub settings: Args,
}

/// The version.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// A version newer than the running one. Default: the newest. A failed version in the other slot gets its attempts
    /// again.
    // Not called `version`, since --version exists.
    #[arg(value_name = "VERSION")]
    pub wanted: Option<Version>,

    /// Timeout of downloading and writing the version, in seconds, also on a slow line. A stalled server is not waited
    /// for any longer.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,

    /// Download the whole version, even if the server has patches from the running one to it.
    #[arg(long)]
    pub whole: bool,

    /// Reboot at once.
    #[arg(long)]
    pub reboot: bool,

    /// The box.
    #[command(flatten)]
    pub settings: Args,
}

/// How to roll back.
#[derive(Debug, clap::Args)]
pub struct RollbackArgs {
    /// Reboot at once.
    #[arg(long)]
    pub reboot: bool,

    /// The box.
    #[command(flatten)]
    pub settings: Args,
}

/// The available version, for programs.
#[derive(Debug, Serialize)]
struct Available {
    running: Version,
    available: Option<Version>,
}

/// What boots next, for programs.
#[derive(Debug, Serialize)]
struct Next {
    next: Option<Version>,
    /// What patches have saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    patched: Option<Saved>,
}

/// Runs the command.
pub fn run(command: Command, context: &mut Context) -> Result<(), Error> {
    match command {
        Command::Check(args) => check(&args, context),
        Command::Apply(args) => apply(&args, context),
        Command::Status(args) => status(&args, context),
        Command::Rollback(args) => rollback(&args, context),
    }
}

fn open(args: &Args) -> Result<Appliance, Error> {
    Ok(Appliance::new(Settings::load(&args.settings).map_err(crate::update::Error::from)?))
}

fn check(args: &CheckArgs, context: &mut Context) -> Result<(), Error> {
    let appliance = open(&args.settings)?;
    let available = appliance.check(Duration::from_secs(args.timeout))?;
    let running = appliance.status()?.running;
    context.output.show(&Available { running, available }, |Available { running, available }, output| {
        match available {
            Some(version) => {
                output.line(format_args!("{version} is there, {running} runs: linerate update apply"))
            }
            None => output.line(format_args!("{running} runs, and there is nothing newer")),
        }
    })
}

fn apply(args: &ApplyArgs, context: &mut Context) -> Result<(), Error> {
    let appliance = open(&args.settings)?;
    let applied =
        appliance.apply(args.wanted.as_ref(), args.whole, Duration::from_secs(args.timeout), |error| {
            eprintln!("no patches are used: {}", exit::chain(error));
        })?;
    let boots = applied.is_some();
    let is_on_trial = applied.as_ref().is_some_and(|applied| applied.is_on_trial);
    let (next, patched) =
        applied.map_or((None, None), |Applied { version, saved, .. }| (Some(version), saved));
    context.output.show(&Next { next, patched }, |Next { next, patched }, output| {
        if let Some(Saved { downloaded, whole }) = patched {
            let [downloaded, whole] = [downloaded, whole].map(|bytes| bytes.div_ceil(1 << 20));
            output.line(format_args!("patches: {downloaded} MiB were downloaded in place of {whole}"))?;
        }
        match next {
            Some(version) if is_on_trial => output.line(format_args!("{version} boots next, on trial")),
            Some(version) => output.line(format_args!("{version} boots next")),
            None => output.line("there is nothing newer"),
        }
    })?;
    context.output.flush()?;
    if boots && args.reboot {
        appliance.reboot()?;
    }
    Ok(())
}

fn rollback(args: &RollbackArgs, context: &mut Context) -> Result<(), Error> {
    let appliance = open(&args.settings)?;
    let next = Some(appliance.rollback()?);
    context.output.show(&Next { next, patched: None }, |Next { next, .. }, output| match next {
        Some(version) => output.line(format_args!("{version} boots next")),
        None => Ok(()),
    })?;
    context.output.flush()?;
    if args.reboot { Ok(appliance.reboot()?) } else { Ok(()) }
}

fn status(args: &Args, context: &mut Context) -> Result<(), Error> {
    context.output.show(&open(args)?.status()?, print)
}

fn print(status: &Status, output: &mut Output) -> Result<(), Error> {
    let Status { id, running, floor, source, versions } = status;
    output.line(format_args!("{id} {running} runs"))?;
    output.line(match source {
        Some(source) => format!("updates: {source}"),
        None => "updates: none".to_owned(),
    })?;
    if let Some(floor) = floor {
        output.line(format_args!("no version below {floor}"))?;
    }
    let rows = versions.iter().map(|entry| {
        let known = match entry.trial {
            Trial::Good => "good".to_owned(),
            Trial::Left { left: 0, done: 0 } => "taken back".to_owned(),
            Trial::Left { left: 0, done } => format!("failed, after {done}"),
            Trial::Left { left, .. } => format!("on trial, {left} left"),
        };
        let runs = if entry.version == *running { "runs" } else { "" };
        [entry.version.to_string(), known, runs.to_owned()]
    });
    output.table(["VERSION", "IS", ""], rows)
}
