//! `profile`: shows what a service or the whole machine does, as a flame graph.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::console::flame::{self, Hot, Tree, Unit, percent};
use serde::Serialize;

use super::{Context, Error};
use crate::samples::{self, Kind, Taken, Target};

/// The largest file of folded stacks, in bytes.
const MOST_FOLDED: u64 = 64 << 20;

/// How many functions are printed.
const PRINTED: usize = 20;

/// What to profile, and how to show it.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["service", "pid", "all", "diff"])))]
pub struct Args {
    /// A service, by the name of its unit or program: links, linerate-api, nginx.service. All its processes and threads
    /// are profiled.
    #[arg(value_name = "SERVICE")]
    pub service: Option<String>,

    /// One process instead.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,

    /// The whole machine instead: all processes and the kernel.
    #[arg(long)]
    pub all: bool,

    /// Compare two files of --folded, the older first: growth is red, shrinkage blue.
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with_all = ["seconds", "frequency", "waiting", "folded"])]
    pub diff: Vec<PathBuf>,

    /// How long, in seconds.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,

    /// Samples per second of a CPU's time. Not a round number, so that it does not coincide with timers.
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=999),
          conflicts_with = "waiting")]
    pub frequency: u32,

    /// Show what waits and for how long, instead of what runs: from each time that a thread leaves its CPU until it
    /// returns. A thread that waits the whole time is not seen.
    #[arg(long)]
    pub waiting: bool,

    /// Draw the flame graph to this file, as an SVG.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print the folded stacks, one per line, for --diff and for other tools, instead of a table. With --json they are
    /// included.
    #[arg(long)]
    pub folded: bool,
}

/// The profile, for programs.
#[derive(Debug, Serialize)]
struct Seen<'a> {
    what: &'a str,
    kind: &'a str,
    seconds: u64,
    event: &'a str,
    kernel: bool,
    unit: &'a str,
    stacks: u64,
    lost: u64,
    hottest: Vec<Function>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folded: Option<&'a str>,
}

/// The comparison of two profiles, for programs.
#[derive(Debug, Serialize)]
struct Compared {
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    own: u64,
    total: u64,
}

/// A function's own share before and after, in percent.
#[derive(Debug, Serialize)]
struct Change {
    name: String,
    before: f64,
    now: f64,
}

/// Records a profile, or compares two.
pub fn run(args: &Args, context: &mut Context) -> Result<(), Error> {
    if let [before, now] = &args.diff[..] {
        return compare(before, now, args.output.as_deref(), context);
    }
    if context.rehearsal {
        return Err(Error::Recorded("profile"));
    }
    let (target, what) = match (&args.service, args.pid) {
        (Some(service), _) => (Target::Service(service.clone()), service.clone()),
        (None, Some(pid)) => (Target::Process(pid), format!("process {pid}")),
        (None, None) => (Target::Machine, "the machine".to_owned()),
    };
    let kind = if args.waiting { Kind::Waiting } else { Kind::OnCpu { hertz: args.frequency } };
    let taken = samples::take(&*context.system, &target, kind, Duration::from_secs(args.seconds))?;
    // The recorded stacks are parsed like those from a file.
    let tree = Tree::parse(&taken.folded).map_err(|source| Error::Folded { path: "-".into(), source })?;
    let waiting = if args.waiting { "waiting" } else { "on CPU" };
    if let Some(path) = &args.output {
        write(path, &flame::svg(&tree, &format!("{what}, {waiting}, {} s", args.seconds), taken.unit))?;
    }
    if args.folded && !context.output.is_json() {
        return context.output.text(&taken.folded);
    }
    let hottest = tree.hottest(PRINTED);
    let seen = Seen {
        what: &what,
        kind: if args.waiting { "waiting" } else { "cpu" },
        seconds: args.seconds,
        event: taken.event,
        kernel: taken.kernel,
        unit: if taken.unit == Unit::Micros { "microseconds" } else { "samples" },
        stacks: taken.seen,
        lost: taken.lost,
        hottest: hottest.iter().map(Function::of).collect(),
        folded: args.folded.then_some(taken.folded.as_str()),
    };
    let explain = context.explain;
    context.output.show(&seen, |seen, output| {
        let row = |function: &Function| {
            let share = |weight| format!("{:.1}%", percent(weight, tree.total()));
            [share(function.own), share(function.total), function.name.clone()]
        };
        if seen.hottest.is_empty() {
            output.line(format_args!("{what} did nothing {waiting} in {} s.", args.seconds))?;
        } else {
            output.table(["ITSELF", "WITH CALLS", "FUNCTION"], seen.hottest.iter().map(row))?;
            output.line("")?;
        }
        output.line(about(&taken, &tree))?;
        if explain {
            output.line(
                "The kernel walks stacks by frame pointers: where a program or a library is built without them, what ran is \
                 right, and its callers are missing or wrong.",
            )?;
        }
        Ok(())
    })
}

/// One line that says what was counted, and what is missing.
fn about(taken: &Taken, tree: &Tree) -> String {
    let mut text = format!("{} by {}", taken.unit.show(tree.total()), taken.event);
    if !taken.kernel {
        text += ", without the kernel's part, which is not for this user";
    }
    if taken.lost > 0 {
        text += &format!("; {} more were lost, since there was no room", taken.lost);
    }
    text + "."
}

fn compare(before: &Path, now: &Path, output: Option<&Path>, context: &mut Context) -> Result<(), Error> {
    let (old, new) = (read(before)?, read(now)?);
    let parse = |path: &Path, text: &str| {
        Tree::parse(text).map_err(|source| Error::Folded { path: path.to_owned(), source })
    };
    let (then, since) = (parse(before, &old)?, parse(now, &new)?);
    let both = Tree::compare(&old, &new).map_err(|source| Error::Folded { path: now.to_owned(), source })?;
    if let Some(path) = output {
        let title = format!("{}, beside {}", now.display(), before.display());
        write(path, &flame::svg(&both, &title, Unit::Samples))?;
    }
    let changes = flame::changes(&then, &since, PRINTED).into_iter();
    let compared = Compared {
        changes: changes.map(|flame::Change { name, before, now }| Change { name, before, now }).collect(),
    };
    context.output.show(&compared, |compared, output| {
        let row = |change: &Change| {
            let share = |share: f64| format!("{share:.1}%");
            [
                share(change.before),
                share(change.now),
                format!("{:+.1}", change.now - change.before),
                change.name.clone(),
            ]
        };
        output.table(["BEFORE", "NOW", "CHANGE", "FUNCTION ITSELF"], compared.changes.iter().map(row))
    })
}

impl Function {
    fn of(hot: &Hot) -> Self {
        Self { name: hot.name.clone(), own: hot.own, total: hot.total }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MOST_FOLDED).read_to_string(&mut text));
    read.map(|_| text).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File { path: path.to_owned(), source })
}
