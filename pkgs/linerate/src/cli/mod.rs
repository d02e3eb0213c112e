//! The command line. Each command is a file, with its `Args` and a `run`.
// More than a dozen files: one for each command.

pub mod bench;
pub mod console;
pub mod console_helper;
pub mod doctor;
pub mod error;
pub mod files_writer;
pub mod fleet;
pub mod manual;
pub mod nic;
pub mod picture;
pub mod profile;
pub mod up;
pub mod update;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use service::manual::{CompletionsArgs, ManArgs};
use service::settings;

use crate::system::{self, System};
pub use error::Error;

/// Standard output.
pub type Output = service::output::Output<Error>;

/// The binary's name.
pub const NAME: &str = "linerate";

/// The end of `--help` and of the manual page.
const AFTERWORD: &str = "\
Examples:
  linerate up
      runs links, files and api together with the console, and prints what to try
  linerate nic plan --explain
  linerate nic apply eth0
  linerate doctor --profile /etc/linerate/profile.json
  linerate fleet status
  linerate fleet promote wave1 --well-for 30m
  linerate profile links --seconds 10 --output links.svg
  linerate bench links=http://127.0.0.1:8080/hello --save before.json
  linerate bench links=http://127.0.0.1:8080/hello --against before.json

Exit codes: 0 done, and everything is as it should be; 1 failed; 2 wrong usage; 3 checked, and not everything \
is as it should be. Errors are one line on standard error.";

/// Assigns the queues of network interfaces to CPUs, and says what keeps a machine from its line rate.
#[derive(Debug, Parser)]
#[command(name = NAME, version, propagate_version = true, after_long_help = AFTERWORD)]
pub struct Cli {
    /// Print JSON for programs, as one line.
    #[arg(long, global = true)]
    pub json: bool,

    /// Explain the result: the rules, and their sources.
    #[arg(long, global = true)]
    pub explain: bool,

    /// Use a machine recorded in a file instead of this one. Nothing is written back.
    #[arg(long, global = true, value_name = "FILE", env = "LINERATE_MACHINE")]
    pub machine: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
// Made once per process, so boxing it would save nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run links, files, api and the console together, to try them out.
    Up(up::Args),

    /// Serve the console: one web page for the box, with what its services do, its links, and doctor's findings.
    Console(::console::Args),

    /// Do for the console only what needs more rights than it has: place queues, and profile processes.
    ConsoleHelper(console_helper::Args),

    /// Write files below linerate-files' root for the console: resumable uploads, renames, deletions and directories.
    /// Nothing else.
    FilesWriter(files_writer::Args),

    /// Assign the queues of network interfaces to CPUs.
    #[command(subcommand)]
    Nic(nic::Command),

    /// Say what keeps the machine from its line rate: deviations from its profile, and other problems.
    Doctor(doctor::Args),

    /// Measure what a request costs the services as they run here, and compare with an earlier result.
    Bench(bench::Args),

    /// Show what a service or the whole machine does: which functions use a CPU, or wait, as a flame graph.
    Profile(profile::Args),

    /// Update the box's image from one version to another.
    #[command(subcommand)]
    Update(update::Command),

    /// Manage several boxes: their reports, waves of updates, and the service address.
    #[command(subcommand)]
    Fleet(fleet::Command),

    /// Print shell completions.
    Completions(CompletionsArgs),

    /// Print the manual page, or write the pages of all commands.
    Man(ManArgs),
}

/// The context of every command.
pub struct Context {
    /// The machine.
    pub system: Box<dyn System>,
    /// Whether the machine only exists in memory.
    pub rehearsal: bool,
    /// Whether to explain results.
    pub explain: bool,
    /// Where to print.
    pub output: Output,
}

/// Parses the arguments and runs what they ask for.
pub fn main() -> ExitCode {
    match run(settings::parse(console::NAME, console::NAME)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// The name of a command that is about the real machine, whatever was recorded of another.
fn acts(command: &Command) -> Option<&'static str> {
    match command {
        Command::Up(_) => Some("up"),
        Command::FilesWriter(_) => Some("files-writer"),
        Command::Bench(_) => Some("bench"),
        Command::Update(_) => Some("update"),
        Command::Fleet(_) => Some("fleet"),
        // Profiles that were saved can be compared anywhere.
        Command::Profile(_)
        | Command::Console(_)
        | Command::ConsoleHelper(_)
        | Command::Nic(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Man(_) => None,
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    if let Command::Console(args) = &cli.command {
        return console::run(args, cli.machine);
    }
    if let Command::ConsoleHelper(args) = &cli.command {
        return console_helper::run(args, cli.machine);
    }
    let rehearsal = cli.machine.is_some();
    if rehearsal && let Some(name) = acts(&cli.command) {
        return Err(Error::Recorded(name));
    }
    if let Command::FilesWriter(args) = &cli.command {
        return files_writer::run(args);
    }
    let system = system::open(cli.machine.as_deref())?;
    let mut context = Context { system, rehearsal, explain: cli.explain, output: Output::new(cli.json) };
    let done = match cli.command {
        Command::Nic(command) => nic::run(command, &mut context),
        Command::Up(args) => up::run(args, &mut context),
        Command::Update(command) => update::run(command, &mut context),
        Command::Fleet(command) => fleet::run(command, &mut context),
        Command::Profile(args) => profile::run(&args, &mut context),
        Command::Bench(args) => bench::run(&args, &mut context),
        Command::Completions(args) => manual::completions(&args, &mut context),
        Command::Man(args) => manual::man(args, &mut context),
        Command::Doctor(args) => doctor::run(&args, &mut context),
        // These commands have no output of their own, and they read the machine again for each request.
        Command::Console(_) | Command::ConsoleHelper(_) | Command::FilesWriter(_) => Ok(()),
    };
    // Flush output even after a failure.
    let flushed = context.output.flush();
    done.and(flushed)
}
