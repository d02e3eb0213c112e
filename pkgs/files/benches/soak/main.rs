//! Sends a given number of bytes, and fails if the server keeps anything.
//!
//! `make soak [ARGS="20GB"]`, or `ARGS="30min"`: 500 GB by default. Rounds request hot and cold files, plain, with TLS
//! and with HTTP/3, until that much is sent. After each round, once all its connections are closed, the server's
//! memory, descriptors and pipes and the kernel's memory are read. One minute runs first and does not count. The first
//! tenth is for warming up too: the most that was kept in its second half is the reference. A figure that stays above
//! its reference through the whole last tenth, by more than its tolerance, has grown, and the run fails.
//!
//! With `--plant`, clients that read nothing stay connected after each round, so the server has to keep something, and
//! the run has to fail. The kernel's memory is that of the whole machine: whatever else runs there counts too.
#![forbid(unsafe_code)]

mod load;
mod measure;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bench::certificate::{self, CHAIN, KEY};
use bench::server::{Server, free_address};
use bench::{Error, setup};

use load::{Kind, Round};
use measure::{Kept, NAMES, grown};

/// The default of what is sent, in bytes.
const BYTES: u64 = 500_000_000_000;

/// How often a line is printed.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// How long rounds run before anything counts: by then caches, copies and threads are filled, however little is sent.
const WARM_UP: Duration = Duration::from_secs(60);

/// How much a warm-up round requests.
const WARM_UP_BYTES: u64 = 64 << 20;

/// The fewest samples: with fewer, a tenth says nothing.
const LEAST_SAMPLES: usize = 40;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Bytes(u64),
    Time(Duration),
}

fn main() -> ExitCode {
    if let Some(code) = load::run_if_asked() {
        return code;
    }
    let mut until = Until::Bytes(BYTES);
    let mut plants = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--bench" => {}
            "--plant" => plants = true,
            amount => match parse(amount) {
                Some(parsed) => until = parsed,
                None => {
                    eprintln!("error: {amount:?} is neither an amount, such as 20GB or 30min, nor --plant");
                    return ExitCode::from(2);
                }
            },
        }
    }
    match run(until, plants) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}", service::exit::chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// `20GB`, `500MB`, `30min`, `90s`.
fn parse(text: &str) -> Option<Until> {
    let end = text.find(|one: char| !one.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok().filter(|number| *number > 0)?;
    match &text[end..] {
        "MB" => number.checked_mul(1_000_000).map(Until::Bytes),
        "GB" => number.checked_mul(1_000_000_000).map(Until::Bytes),
        "TB" => number.checked_mul(1_000_000_000_000).map(Until::Bytes),
        "s" => Some(Until::Time(Duration::from_secs(number))),
        "min" => number.checked_mul(60).map(|seconds| Until::Time(Duration::from_secs(seconds))),
        "h" => number.checked_mul(3600).map(|seconds| Until::Time(Duration::from_secs(seconds))),
        _ => None,
    }
}

/// Returns whether nothing has grown.
fn run(until: Until, plants: bool) -> Result<bool, Error> {
    let isolated = setup::isolate();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = tempfile::tempdir_in(scratch)?;
    let root = place.path().join("root");
    load::make_files(&root)?;
    certificate::make(place.path())?;
    let (clear, secure) = (free_address()?, free_address()?);
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate-files"));
    command
        .args(["serve", "--listen", &clear.to_string(), "--tls-listen", &secure.to_string(), "--root"])
        .arg(&root);
    command.arg("--cert").arg(place.path().join(CHAIN)).arg("--key").arg(place.path().join(KEY));
    // Clients that are left behind stay as long as it takes.
    command.args(["--write-timeout", "1000000", "--idle-timeout", "1000000"]);
    let server = Server::start("linerate-files", clear, &mut command)?;
    println!("{isolated}");
    println!("{:>9} {:>8} {}", "sent", "seconds", NAMES.map(|name| format!("{name:>16}")).join(""));

    let warm = Instant::now();
    for kind in Kind::ALL.into_iter().cycle().take_while(|_| warm.elapsed() < WARM_UP) {
        let address = if kind.is_plain() { clear } else { secure };
        Round { kind, address, root: &root, bytes: WARM_UP_BYTES }.run()?;
    }
    let begun = Instant::now();
    let (mut sent, mut told) = (0, None::<Instant>);
    let mut samples: Vec<(f64, Kept)> = Vec::new();
    let mut planted = Vec::new();
    // Each round requests as much as possible while there are enough samples; one round of each kind makes a sample.
    let share = match until {
        Until::Bytes(bytes) => {
            (bytes / (Kind::ALL.len() as u64 * LEAST_SAMPLES as u64)).clamp(8 << 20, 2 << 30)
        }
        Until::Time(_) => 256 << 20,
    };
    let progress = |sent: u64, samples: usize| {
        let done = match until {
            Until::Bytes(bytes) => sent as f64 / bytes as f64,
            Until::Time(time) => begun.elapsed().as_secs_f64() / time.as_secs_f64(),
        };
        done.min(samples as f64 / LEAST_SAMPLES as f64)
    };
    for number in 0.. {
        let kind = Kind::ALL[number % Kind::ALL.len()];
        let address = if kind.is_plain() { clear } else { secure };
        sent += Round { kind, address, root: &root, bytes: kind.share(share) }.run()?;
        if plants {
            planted.push(load::plant(clear, secure)?);
        }
        // Samples are taken after one round of each kind, so that all of them follow the same rounds.
        if (number + 1) % Kind::ALL.len() == 0 {
            let kept = Kept::of(server.process_id(), planted.len())?;
            let done = progress(sent, samples.len() + 1);
            samples.push((done, kept));
            if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) || done >= 1.0 {
                told = Some(Instant::now());
                println!("{:>6.1} GB {:>8.0} {kept}", sent as f64 / 1e9, begun.elapsed().as_secs_f64());
            }
            if done >= 1.0 {
                break;
            }
        }
    }
    let grown = grown(&samples);
    for growth in &grown {
        println!("error: {growth}");
    }
    if grown.is_empty() {
        println!(
            "soak: {:.1} GB in {:.0} s, and nothing has grown since the first tenth",
            sent as f64 / 1e9,
            begun.elapsed().as_secs_f64()
        );
    }
    drop(planted);
    Ok(grown.is_empty())
}
