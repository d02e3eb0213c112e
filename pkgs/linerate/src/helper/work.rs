//! Performs a request by running this program in a separate process. Only that process can crash, run out of memory or
//! take too long.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use service::exit;

use super::{MOST_ANSWER, Request, Verb};
use crate::doctor::{self, Interval, RuleContext};
use crate::nic::PlacementRequest;
use crate::nic::plan::Steering;
use crate::profile::Profile;
use crate::system;

/// How long placing queues may take: setting channels restarts a card.
const PLACING: Duration = Duration::from_secs(60);

/// How long resolving symbols may take after the recording.
const NAMING: Duration = Duration::from_secs(60);

/// How much of an error message is read, in bytes.
const MOST_ERROR: u64 = 8192;

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The command's output, which is JSON.
    pub output: String,
    /// Why the request failed, in one line.
    pub error: Option<String>,
}

/// Performs one action of each kind at a time, and refuses another one in the meantime.
#[derive(Debug, Default)]
pub struct Worker {
    /// The profile by which queues are placed.
    profile: Option<PathBuf>,
    /// A recorded machine to use instead of this one.
    recorded: Option<PathBuf>,
    placing: Mutex<()>,
    looking: Mutex<()>,
}

impl Worker {
    /// A worker for this machine or a recorded one, and its profile.
    pub fn new(profile: Option<PathBuf>, recorded: Option<PathBuf>) -> Self {
        Self { profile, recorded, ..Self::default() }
    }

    /// Performs the request, and waits until that has ended.
    pub fn work(&self, request: &Request) -> Answer {
        let refused = |why: String| Answer { output: String::new(), error: Some(why) };
        if let Err(error) = request.check() {
            return refused(error.to_string());
        }
        let (turn, time) = match request.verb {
            Verb::Profile { seconds, .. } => (&self.looking, Duration::from_secs(seconds) + NAMING),
            _ => (&self.placing, PLACING),
        };
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return refused("another one is under way; ask again once it is done".into());
            }
        };
        match self.words(&request.verb).and_then(|words| run(&words, time)) {
            Ok(output) => Answer { output, error: None },
            Err(why) => refused(why),
        }
    }

    /// The arguments of the command. Names follow the end of the options, so they can't be taken for options.
    fn words(&self, verb: &Verb) -> Result<Vec<String>, String> {
        let mut words = vec!["--json".to_owned()];
        if let Some(recorded) = &self.recorded {
            words.extend(["--machine".to_owned(), recorded.display().to_string()]);
        }
        match verb {
            Verb::Apply { interface } => {
                let wish = self.wish(interface)?;
                words.extend(["nic", "apply", "--policy"].map(str::to_owned));
                words.push(wish.policy.to_string());
                if wish.steering == Steering::Off {
                    words.push("--no-rps".into());
                }
                if let Some(queues) = wish.queues {
                    words.extend(["--queues".to_owned(), queues.to_string()]);
                }
                words.extend(["--".to_owned(), interface.clone()]);
            }
            Verb::Undo { interface } => words.extend(["nic", "undo", "--", interface].map(str::to_owned)),
            Verb::Profile { service, seconds, waiting } => {
                words.extend(["profile", "--folded", "--seconds"].map(str::to_owned));
                words.push(seconds.to_string());
                if *waiting {
                    words.push("--waiting".into());
                }
                match service {
                    Some(service) => words.extend(["--".to_owned(), service.clone()]),
                    None => words.push("--all".into()),
                }
            }
        }
        Ok(words)
    }

    /// How to place an interface's queues. The console shows the same placement.
    fn wish(&self, interface: &str) -> Result<PlacementRequest, String> {
        let system = system::open(self.recorded.as_deref()).map_err(|error| exit::chain(&error))?;
        let profile = match &self.profile {
            None => Profile::default(),
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
                text.parse().map_err(|error| format!("{}: {}", path.display(), exit::chain(&error)))?
            }
        };
        let wishes = doctor::wishes(&RuleContext {
            system: &*system,
            profile: &profile,
            interval: &Interval::default(),
        });
        let wish = wishes.into_iter().find(|(wished, ..)| wished == interface);
        Ok(wish.map_or_else(PlacementRequest::default, |(_, wish, _)| wish))
    }
}

/// Runs this program with these arguments and an empty environment, and returns its output.
fn run(words: &[String], time: Duration) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot run linerate: {error}");
    let mut child = Command::new("/proc/self/exe")
        .arg0("linerate")
        .args(words)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let read = |pipe: Option<Box<dyn Read + Send>>, most: u64| {
        thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.by_ref().take(most).read_to_end(&mut text);
                // Excess output is still read, so that the process can end.
                let _ = std::io::copy(&mut pipe, &mut std::io::sink());
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let output = read(child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>), MOST_ANSWER);
    let errors = read(child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>), MOST_ERROR);
    let end = Instant::now() + time;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it took more than {} s and was ended", time.as_secs()));
            }
        }
    };
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    if status.success() {
        return Ok(output);
    }
    let last = errors.lines().last().map(|line| line.strip_prefix("error: ").unwrap_or(line));
    Err(last.filter(|line| !line.is_empty()).map_or_else(|| format!("it ended with {status}"), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_fixed_command_line_with_names_behind_its_options() {
        let recorded = format!("{}/tests/machines/c6i.4xlarge-8.txt", env!("CARGO_MANIFEST_DIR"));
        let worker = Worker::new(None, Some(recorded.clone().into()));
        let begin = format!("--json --machine {recorded}");
        for (verb, expected) in [
            (Verb::Apply { interface: "ens5".into() }, "nic apply --policy spread -- ens5"),
            (Verb::Undo { interface: "ens5".into() }, "nic undo -- ens5"),
            (
                Verb::Profile { service: Some("links".into()), seconds: 3, waiting: true },
                "profile --folded --seconds 3 --waiting -- links",
            ),
            (
                Verb::Profile { service: None, seconds: 3, waiting: false },
                "profile --folded --seconds 3 --all",
            ),
        ] {
            assert_eq!(worker.words(&verb).expect("words").join(" "), format!("{begin} {expected}"));
        }
        let profile = std::path::Path::new(&recorded).with_extension("json");
        let worker = Worker::new(Some(profile), Some(recorded.into()));
        let words = worker.words(&Verb::Apply { interface: "ens5".into() }).expect("words").join(" ");
        assert!(words.contains(" --policy pin="), "as the profile says: {words}");
    }

    #[test]
    fn what_is_under_way_is_not_begun_again() {
        let worker = Worker::default();
        let _turn = worker.looking.lock().expect("a turn");
        let verb = Verb::Profile { service: None, seconds: 1, waiting: false };
        let answer = worker.work(&Request { verb, by: String::new() });
        assert!(answer.error.is_some_and(|why| why.contains("under way")));
        let answer =
            worker.work(&Request { verb: Verb::Undo { interface: "a/b".into() }, by: String::new() });
        assert!(answer.error.is_some_and(|why| why.starts_with("no interface")));
    }
}
