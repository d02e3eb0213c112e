//! `fleet`: manages several boxes.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use service::logs::{self, LogArgs};
use service::socket::Address;

use super::{Context, Error, Output};
use crate::fleet::announce::{self, Announcement};
use crate::fleet::ask::Asker;
use crate::fleet::health::{self, Expected};
use crate::fleet::node::{self, Machine, Report, Service};
use crate::fleet::promote::{self, Promoted, Watch};
use crate::fleet::refs::Repository;
use crate::fleet::settings::{RefName, SETTINGS, Settings, Span};
use crate::fleet::{self};

/// The file that drains a box while it exists.
const DRAIN: &str = "/run/linerate-fleet/drain";

/// Commands for several boxes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what each node reports, and how far each wave is. Exits with 3 if a node is unhealthy.
    Status(StatusArgs),
    /// Move a wave's branch to that of the wave before it, once that wave has been healthy for long enough. Exits with
    /// 3 and moves nothing as soon as a node of the wave before is unhealthy.
    Promote(PromoteArgs),
    /// Stop all waves, including those being watched; branches stay where they are.
    Halt(HaltArgs),
    /// Let waves continue.
    Resume(Args),
    /// Announce this box's share of the service address while its services are ready, until told to stop.
    Announce(AnnounceArgs),
    /// Give up this box's share of the service address; its services continue.
    Drain(DrainArgs),
    /// Take the share again.
    Undrain(DrainArgs),
}

/// The fleet.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Nodes and waves, in TOML.
    #[arg(long, value_name = "FILE", env = "LINERATE_FLEET_SETTINGS", default_value = SETTINGS)]
    pub settings: PathBuf,
}

/// What to show.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The time between two reads of error counters, in seconds; 0 counts since the services' start.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=3600))]
    pub interval: u64,

    /// The fleet.
    #[command(flatten)]
    pub settings: Args,
}

/// The wave, and the condition.
#[derive(Debug, clap::Args)]
pub struct PromoteArgs {
    /// The branch to move.
    #[arg(value_name = "WAVE")]
    pub wave: RefName,

    /// How long the wave before has to be healthy: 90s, 30m, 2h. Default: from the settings.
    #[arg(long, value_name = "TIME")]
    pub well_for: Option<Span>,

    /// How often to check meanwhile, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub every: u64,

    /// The fleet.
    #[command(flatten)]
    pub settings: Args,
}

/// Why to halt.
#[derive(Debug, clap::Args)]
pub struct HaltArgs {
    /// The reason, for whoever promotes next.
    #[arg(value_name = "WHY", default_value = "no reason was given")]
    pub why: String,

    /// The fleet.
    #[command(flatten)]
    pub settings: Args,
}

/// How to announce.
#[derive(Debug, clap::Args)]
pub struct AnnounceArgs {
    /// A URL that answers 200 while a service is ready; may be repeated.
    #[arg(long, value_name = "URL", required = true)]
    pub ready: Vec<String>,

    /// BIRD's control socket.
    #[arg(long, value_name = "PATH", requires = "protocol")]
    pub bird: Option<PathBuf>,

    /// A BIRD protocol that announces the address; may be repeated.
    #[arg(long, value_name = "NAME", requires = "bird", value_parser = protocol)]
    pub protocol: Vec<String>,

    /// A file for keepalived's track_file: 0 while the box is ready, 1 otherwise.
    #[arg(long, value_name = "FILE")]
    pub track_file: Option<PathBuf>,

    /// Where /readyz answers for the whole box, for a load balancer's health check: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<Address>,

    /// How often to check services, in milliseconds. A service may take as long to answer: between
    /// 500 ms and 10 s.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub every: u64,

    /// The file that drains the box while it exists.
    #[command(flatten)]
    pub drain: DrainArgs,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// The box.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// The file that drains the box while it exists.
    #[arg(long, value_name = "FILE", env = "LINERATE_FLEET_DRAIN", default_value = DRAIN)]
    pub drain_file: PathBuf,
}

/// Checks that a name is valid in BIRD's grammar. It then contains nothing that ends a command.
fn protocol(text: &str) -> Result<String, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match plain && text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.len() <= 64 {
        true => Ok(text.to_owned()),
        false => Err("expected a name of letters, digits and _".to_owned()),
    }
}

/// Runs the command.
pub fn run(command: Command, context: &mut Context) -> Result<(), Error> {
    match command {
        Command::Status(args) => status(&args, context),
        Command::Promote(args) => promoted(&args, context),
        Command::Halt(args) => {
            repository(&args.settings)?.halt(&args.why).map_err(fleet::Error::from)?;
            halted(Some(&args.why), context)
        }
        Command::Resume(args) => {
            repository(&args)?.lift().map_err(fleet::Error::from)?;
            halted(None, context)
        }
        Command::Announce(args) => announced(args),
        Command::Drain(args) => Ok(announce::drain(&args.drain_file, true)?),
        Command::Undrain(args) => Ok(announce::drain(&args.drain_file, false)?),
    }
}

fn load(args: &Args) -> Result<Settings, Error> {
    Ok(Settings::load(&args.settings).map_err(fleet::Error::from)?)
}

fn repository(args: &Args) -> Result<Repository, Error> {
    Ok(Repository::new(&load(args)?.repository))
}

/// Whether waves are halted, for programs.
#[derive(Debug, Serialize)]
struct Halted<'a> {
    halted: Option<&'a str>,
}

fn halted(why: Option<&str>, context: &mut Context) -> Result<(), Error> {
    context.output.show(&Halted { halted: why }, |Halted { halted }, output| match halted {
        Some(why) => output.line(format_args!("halted: {why}")),
        None => output.line("waves may go on"),
    })
}

/// The whole status, for programs.
#[derive(Debug, Serialize)]
struct Status {
    halted: Option<String>,
    waves: Vec<WaveStatus>,
    nodes: Vec<NodeStatus>,
}

#[derive(Debug, Serialize)]
struct WaveStatus {
    wave: RefName,
    commit: Option<String>,
    nodes: usize,
}

#[derive(Debug, Serialize)]
struct NodeStatus {
    #[serde(flatten)]
    report: Report,
    error_percent: Option<f64>,
    /// Its problems.
    problems: Vec<String>,
}

fn status(args: &StatusArgs, context: &mut Context) -> Result<(), Error> {
    let settings = load(&args.settings)?;
    let repository = Repository::new(&settings.repository);
    let mut waves = Vec::new();
    for wave in [&settings.source].into_iter().chain(&settings.waves) {
        let commit = repository.commit(wave).map_err(fleet::Error::from)?;
        waves.push(WaveStatus { wave: wave.clone(), commit, nodes: settings.of_wave(wave).count() });
    }
    let halted = repository.halted().map_err(fleet::Error::from)?;
    let asker = Asker::new(settings.cacert.as_deref()).map_err(fleet::Error::from)?;
    let nodes: Vec<_> = settings.nodes.iter().collect();
    let mut before = None;
    if args.interval > 0 {
        before = Some(node::ask_all(&asker, &nodes));
        std::thread::sleep(Duration::from_secs(args.interval));
    }
    let reports = node::ask_all(&asker, &nodes).into_iter().enumerate();
    let nodes: Vec<_> = reports
        .map(|(index, report)| {
            let before = before.as_ref().map(|before| &before[index]);
            let at = waves.iter().find(|wave| wave.wave.as_str() == report.wave);
            let commit = at.and_then(|wave| wave.commit.as_deref());
            let expected = Expected { commit, max_error_percent: settings.max_error_percent };
            NodeStatus {
                error_percent: health::error_percent(before, &report),
                problems: health::problems(before, &report, &expected),
                report,
            }
        })
        .collect();
    let unhealthy = nodes.iter().filter(|node| !node.problems.is_empty()).count();
    context.output.show(&Status { halted, waves, nodes }, print)?;
    if unhealthy == 0 { Ok(()) } else { Err(Error::Unwell(unhealthy)) }
}

fn print(status: &Status, output: &mut Output) -> Result<(), Error> {
    let Status { halted, waves, nodes } = status;
    if let Some(why) = halted {
        output.line(format_args!("halted: {why}"))?;
    }
    let rows = waves.iter().map(|WaveStatus { wave, commit, nodes }| {
        [wave.to_string(), commit.as_deref().map_or("none", health::short).to_owned(), nodes.to_string()]
    });
    output.table(["WAVE", "COMMIT", "NODES"], rows)?;
    output.line("")?;
    let rows = nodes.iter().map(|NodeStatus { report, error_percent, problems }| {
        let services = report.services.values().map(|service| match service {
            Service::Silent(_) => "silent".to_owned(),
            Service::Reports(facts) => {
                format!(
                    "{} {}{}",
                    facts.service,
                    facts.version,
                    if facts.not_ready.is_some() { "!" } else { "" }
                )
            }
        });
        let findings = match &report.machine {
            None => "-".to_owned(),
            Some(Machine::Silent(_)) => "silent".to_owned(),
            Some(Machine::Findings { critical, warning }) => {
                format!("{critical} critical, {warning} warnings")
            }
        };
        [
            report.node.clone(),
            report.wave.clone(),
            report.generations().into_iter().map(health::short).collect::<Vec<_>>().join(", "),
            services.collect::<Vec<_>>().join(", "),
            findings,
            error_percent.map_or("-".to_owned(), |percent| format!("{percent:.2} %")),
            if problems.is_empty() { "yes".to_owned() } else { "no".to_owned() },
        ]
    });
    output.table(["NODE", "WAVE", "GENERATION", "SERVICES", "FINDINGS", "ERRORS", "WELL"], rows)?;
    for NodeStatus { report, problems, .. } in nodes {
        for why in problems {
            output.line(format_args!("{}: {why}", report.node))?;
        }
    }
    Ok(())
}

fn promoted(args: &PromoteArgs, context: &mut Context) -> Result<(), Error> {
    let settings = load(&args.settings)?;
    let well_for = args.well_for.unwrap_or(settings.well_for).0;
    let watch = Watch { well_for, every: Duration::from_secs(args.every) };
    let said = |left: Duration| {
        // Progress for people; it may be lost.
        drop(writeln!(std::io::stderr(), "well, and {} s to go", left.as_secs()));
    };
    let done = promote::promote(&settings, &args.wave, watch, said)?;
    context.output.show(&done, |done: &Promoted, output| {
        let Promoted { wave, was, is, well_for_seconds } = done;
        let is = health::short(is);
        match was.as_deref().map(health::short) {
            Some(was) if was == is => output.line(format_args!("{wave} is at {is} already")),
            was => output.line(format_args!(
                "{wave}: {} → {is}, after the wave before was well for {well_for_seconds} s",
                was.unwrap_or("none")
            )),
        }
    })
}

fn announced(args: AnnounceArgs) -> Result<(), Error> {
    logs::init(&args.logs);
    let announcement = Announcement {
        ready: args.ready,
        drain: args.drain.drain_file,
        every: Duration::from_millis(args.every),
        bird: args.bird.map(|socket| (socket, args.protocol)),
        track_file: args.track_file,
        listen: args.listen,
    };
    Ok(announce::run(&announcement)?)
}
