//! Which commit each wave has reached: branches in a bare git repository, which git itself moves.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::settings::RefName;

/// A ref that halts all waves; it points to a blob with the reason.
const HALTED: &str = "refs/linerate/halted";
/// How long git may take for each command here.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to check whether git has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How much of git's output is read at most, in bytes.
const MAX_SAID: u64 = 64 << 10;

/// A bare repository.
#[derive(Clone, Debug)]
pub struct Repository {
    path: PathBuf,
}

/// Why a ref wasn't read or moved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// git doesn't start.
    #[error("git: {0}")]
    Start(#[source] io::Error),
    /// git takes too long.
    #[error("git {0} took more than {PATIENCE:?}")]
    Late(String),
    /// git refuses.
    #[error("{}: git {command}: {said}", path.display())]
    Refused {
        /// The repository.
        path: PathBuf,
        /// The git command.
        command: String,
        /// What git said.
        said: String,
    },
    /// There is no such branch.
    #[error("{}: there is no branch {name}", path.display())]
    NoBranch {
        /// The repository.
        path: PathBuf,
        /// The branch.
        name: RefName,
    },
}

/// How git ended, and its output.
struct Ended {
    success: bool,
    stdout: String,
    stderr: String,
}

impl Repository {
    /// The repository at this path.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// A branch's commit; none if there is no such branch.
    pub fn commit(&self, name: &RefName) -> Result<Option<String>, Error> {
        self.resolve(&format!("refs/heads/{name}^{{commit}}"))
    }

    /// The same for a branch that must exist.
    pub fn expect(&self, name: &RefName) -> Result<String, Error> {
        let commit = self.commit(name)?;
        commit.ok_or_else(|| Error::NoBranch { path: self.path.clone(), name: name.clone() })
    }

    /// Whether `new` contains everything in `old`.
    pub fn follows(&self, new: &str, old: &str) -> Result<bool, Error> {
        Ok(self.run(&["merge-base", "--is-ancestor", old, new], "")?.success)
    }

    /// Moves a branch from `old` to `new`. Fails if somebody else has moved it in the meantime.
    pub fn advance(&self, name: &RefName, new: &str, old: Option<&str>) -> Result<(), Error> {
        // Zeros mean that the branch must not exist yet. They are as many as a commit has digits, so this works with
        // SHA-256 too.
        let none = "0".repeat(new.len());
        let message = format!("linerate fleet promote {name}");
        let name = format!("refs/heads/{name}");
        self.done(&["update-ref", "-m", &message, &name, new, old.unwrap_or(&none)], "").map(drop)
    }

    /// The reason if all waves are halted.
    pub fn halted(&self) -> Result<Option<String>, Error> {
        let Some(blob) = self.resolve(HALTED)? else { return Ok(None) };
        let why = self.done(&["cat-file", "blob", &blob], "")?;
        Ok(Some(why.trim().chars().take(500).map(|one| if one.is_control() { ' ' } else { one }).collect()))
    }

    /// Halts all waves.
    pub fn halt(&self, why: &str) -> Result<(), Error> {
        let blob = self.done(&["hash-object", "-w", "--stdin"], why)?;
        self.done(&["update-ref", HALTED, blob.trim()], "").map(drop)
    }

    /// Lets waves go on again.
    pub fn lift(&self) -> Result<(), Error> {
        self.done(&["update-ref", "-d", HALTED], "").map(drop)
    }

    fn resolve(&self, name: &str) -> Result<Option<String>, Error> {
        let ended = self.run(&["rev-parse", "--verify", "--quiet", name], "")?;
        match (ended.success, ended.stderr.trim()) {
            (true, _) => Ok(Some(ended.stdout.trim().to_owned())),
            // If the ref doesn't exist, git prints nothing; if the directory isn't a repository, it prints an error.
            (false, "") => Ok(None),
            (false, _) => Err(self.refused("rev-parse", &ended)),
        }
    }

    fn done(&self, arguments: &[&str], input: &str) -> Result<String, Error> {
        let ended = self.run(arguments, input)?;
        if ended.success { Ok(ended.stdout) } else { Err(self.refused(arguments[0], &ended)) }
    }

    fn refused(&self, command: &str, ended: &Ended) -> Error {
        let said = ended.stderr.trim().lines().next().unwrap_or("it did not say why").to_owned();
        Error::Refused { path: self.path.clone(), command: command.to_owned(), said }
    }

    fn run(&self, arguments: &[&str], input: &str) -> Result<Ended, Error> {
        let mut child = Command::new("git")
            .arg("--git-dir")
            .arg(&self.path)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::Start)?;
        let readers = [
            child.stdout.take().map(|pipe| reader(Box::new(pipe))),
            child.stderr.take().map(|pipe| reader(Box::new(pipe))),
        ];
        if let Some(mut stdin) = child.stdin.take() {
            let input = input.to_owned();
            // If git doesn't read its input, its output says why. A thread writes it, since git may never read it, and
            // its time is limited below.
            thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        }
        let begun = Instant::now();
        let status = loop {
            match child.try_wait().map_err(Error::Start)? {
                Some(status) => break status,
                None if begun.elapsed() > PATIENCE => {
                    drop(child.kill());
                    drop(child.wait());
                    return Err(Error::Late(arguments[0].to_owned()));
                }
                None => thread::sleep(LOOK),
            }
        };
        let [stdout, stderr] =
            readers.map(|reader| reader.and_then(|reader| reader.join().ok()).unwrap_or_default());
        Ok(Ended { success: status.success(), stdout, stderr })
    }
}

fn reader(pipe: Box<dyn Read + Send>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut said = Vec::new();
        // The rest of the output isn't needed: only the first line of an error is shown.
        drop(pipe.take(MAX_SAID).read_to_end(&mut said));
        String::from_utf8_lossy(&said).into_owned()
    })
}
