//! A program under test, as it is started by hand: it says where it listens, takes signals, and ends.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::server::signal;

/// How often a process that is to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// What it wrote to standard output first.
    said: String,
}

impl Process {
    /// Starts `command` and waits for the first it writes to standard output: all a service here has to say comes in
    /// one write, once it serves. Nothing, where it ends without.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut buffer = [0; 4096];
        let count = child.stdout.take().map_or(Ok(0), |mut output| output.read(&mut buffer))?;
        Ok(Self { child, said: String::from_utf8_lossy(&buffer[..count]).into_owned() })
    }

    /// What it said.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// What it said on the line that begins with `name`, without space around it.
    pub fn line(&self, name: &str) -> Option<&str> {
        self.said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// Sends it a signal.
    pub fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    /// Waits until it has ended of its own.
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Its resident memory at present and at most, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self) -> io::Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        Ok((bytes("VmRSS:")?, bytes("VmHWM:")?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_where_it_is_and_ends_when_told_to() {
        let script = "printf 'web   http://h/\\nadmin x\\n'; exec sleep 60";
        let mut process = Process::start(Command::new("sh").args(["-c", script])).expect("a shell");
        assert_eq!((process.line("web"), process.line("none")), (Some("http://h/"), None));
        let (present, most) = process.memory().expect("it runs");
        assert!(0 < present && present <= most);
        assert!(process.wait(Duration::ZERO).is_err(), "it sleeps");
        process.signal(Signal::TERM);
        assert!(!process.wait(Duration::from_secs(10)).expect("it ends").success());
    }
}
