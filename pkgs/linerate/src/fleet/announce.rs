//! Decides whether this machine takes its share of the service address: while all of its services are ready and nobody
//! drains it. BIRD announces or withdraws the address, keepalived reads a file, and a load balancer asks `/readyz`.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use listener::{Config, Listener};
use service::admin::Admin;
use service::metrics::{Family, Registry};
use service::ready::Readiness;
use service::shutdown::Shutdown;
use service::socket::Address;

use super::ask::Asker;
use super::{Error, bird};

/// The shortest timeout of a readiness request.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest timeout of a readiness request. Services are asked one after the other, and the machine has to withdraw
/// within the time that its unit has to stop (90 s, systemd-system.conf(5)).
const MAX_PATIENCE: Duration = Duration::from_secs(10);
/// After how many failed requests in a row the machine counts as not ready. One lost answer has no effect.
const FAILURES: u32 = 2;
/// How often an unchanged state is sent again, since BIRD may have been restarted.
const REMIND: Duration = Duration::from_secs(2);

/// How long the process waits after it has withdrawn. Routers can then switch over before systemd stops the units that
/// are ordered to stop after this one.
const FAREWELL: Duration = Duration::from_secs(1);

/// What decides whether the machine is ready, and who is told.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// URLs that answer 200 while a service is ready.
    pub ready: Vec<String>,
    /// While this file exists, the machine is drained.
    pub drain: PathBuf,
    /// How often everything is checked.
    pub every: Duration,
    /// BIRD's control socket, and the protocols that announce the address.
    pub bird: Option<(PathBuf, Vec<String>)>,
    /// The file that keepalived reads: 0 while the machine is ready, 1 otherwise.
    pub track_file: Option<PathBuf>,
    /// Where `/readyz` is answered for the whole machine.
    pub listen: Option<Address>,
}

/// Announces until told to stop, and then withdraws.
///
/// # Errors
/// When it can't listen or start a thread.
pub fn run(announcement: &Announcement) -> Result<(), Error> {
    let shutdown = Shutdown::on_signals()?;
    let told = Told::new(announcement);
    let mut threads = Vec::new();
    if let Some(address) = &announcement.listen {
        let pages = Admin::new(told.readiness.clone(), told.registry());
        threads
            .push(Listener::new(Config::private(address.clone()))?.start_boxed("fleet", pages, &shutdown)?);
    }
    announce(announcement, told, &shutdown)?;
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("the listener ended in a panic");
        }
    }
    Ok(shutdown.outcome()?)
}

fn announce(announcement: &Announcement, mut told: Told<'_>, shutdown: &Shutdown) -> Result<(), Error> {
    let asker = Asker::patient(None, patience(announcement.every))?;
    // Start one failure below the limit: a service that doesn't answer the first request counts as not ready. Nothing
    // is sent before the first check, so until then everybody keeps the state from before a restart.
    let mut failures = vec![FAILURES - 1; announcement.ready.len()];
    while !shutdown.is_triggered() {
        let begun = Instant::now();
        told.tell(look(announcement, &asker, &mut failures));
        thread::sleep(announcement.every.saturating_sub(begun.elapsed()));
    }
    told.tell(Err("stopping".to_owned()));
    thread::sleep(FAREWELL);
    told.readiness.set_stopping();
    Ok(())
}

/// The timeout of a readiness request: the interval between checks, within the two limits. A slow machine that checks
/// seldom waits longer for an answer.
fn patience(every: Duration) -> Duration {
    every.clamp(PATIENCE, MAX_PATIENCE)
}

/// Whether the machine is ready, or why it isn't.
fn look(announcement: &Announcement, asker: &Asker, failures: &mut [u32]) -> Result<(), String> {
    // A link drains too, wherever it leads: `drain` leaves it as it is.
    if announcement.drain.symlink_metadata().is_ok() {
        return Err(format!("drained: {} is there", announcement.drain.display()));
    }
    for (url, failures) in announcement.ready.iter().zip(failures) {
        let why = match asker.get(url) {
            Ok(answer) if answer.status == 200 => {
                *failures = 0;
                continue;
            }
            // The service itself says that it isn't ready, so there is no need to ask again.
            Ok(answer) => {
                *failures = FAILURES;
                format!("{url} answers {}", answer.status)
            }
            Err(error) => {
                *failures = failures.saturating_add(1);
                format!("{url}: {error}")
            }
        };
        if *failures >= FAILURES {
            return Err(why);
        }
    }
    Ok(())
}

/// The last state that BIRD, keepalived and `/readyz` got.
struct Told<'a> {
    announcement: &'a Announcement,
    readiness: Readiness,
    /// Whether the machine was ready, or why not, and when that was sent; none before the first time.
    last: Option<(Result<(), String>, Instant)>,
    /// What couldn't be sent, so that it is logged only once.
    complaints: BTreeSet<String>,
}

impl<'a> Told<'a> {
    fn new(announcement: &'a Announcement) -> Self {
        Self { announcement, readiness: Readiness::new(), last: None, complaints: BTreeSet::new() }
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        let readiness = self.readiness.clone();
        Family::new("linerate_fleet_announced", "Whether this box takes its part of the service address")
            .with(&[], move || f64::from(u8::from(readiness.is_ready())))
            .register(&mut registry);
        registry
    }

    /// Sends the state to all of them, if it has changed or hasn't been sent for [`REMIND`].
    fn tell(&mut self, now: Result<(), String>) {
        let changed = self.last.as_ref().is_none_or(|(last, _)| last.is_ok() != now.is_ok());
        let due = self.last.as_ref().is_none_or(|(_, at)| at.elapsed() >= REMIND);
        if changed {
            match &now {
                Ok(()) => tracing::info!("announced"),
                Err(why) => tracing::warn!(why, "withdrawn"),
            }
        }
        if !changed && !due && self.complaints.is_empty() {
            return;
        }
        let mut failed = BTreeSet::new();
        if let Some((socket, protocols)) = &self.announcement.bird
            && let Err(error) = bird::set(socket, protocols, now.is_ok())
        {
            failed.insert(error.to_string());
        }
        if let Some(path) = &self.announcement.track_file
            && let Err(error) = write(path, if now.is_ok() { "0\n" } else { "1\n" })
        {
            failed.insert(format!("{}: {error}", path.display()));
        }
        for complaint in failed.difference(&self.complaints) {
            tracing::error!("{complaint}");
        }
        self.complaints = failed;
        match &now {
            Ok(()) => self.readiness.set_ready(),
            Err(why) => self.readiness.set_not_ready(why.clone()),
        }
        self.last = Some((now, Instant::now()));
    }
}

/// Writes a file so that readers see either the old or the new one.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// Starts or stops draining a machine.
///
/// # Errors
/// When the file can't be created or removed.
pub fn drain(file: &Path, drained: bool) -> Result<(), Error> {
    let (done, already) = match drained {
        // The directory belongs to the daemon's user. A link that this user has put there isn't followed, since root
        // drains.
        true => {
            let created = OpenOptions::new().write(true).create_new(true).open(file);
            (created.map(drop), ErrorKind::AlreadyExists)
        }
        false => (fs::remove_file(file), ErrorKind::NotFound),
    };
    match done {
        Err(error) if error.kind() == already => Ok(()),
        done => done.map_err(|source| Error::File { path: file.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_machine_that_asks_seldom_waits_as_long_for_an_answer() {
        assert_eq!(patience(Duration::from_millis(100)), PATIENCE);
        let every = Duration::from_secs(60);
        assert_eq!(patience(every), MAX_PATIENCE);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let ready = vec![format!("http://{}/readyz", listener.local_addr().expect("an address"))];
        let service = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            let _ = connection.read(&mut [0; 1024]).expect("a request");
            // Longer than the shortest timeout, as on a slow emulated machine.
            thread::sleep(PATIENCE + PATIENCE / 5);
            let answered = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            answered.expect("it is waited for");
        });
        let drain = PathBuf::from("/nonexistent/drain");
        let announcement = Announcement { ready, drain, every, bird: None, track_file: None, listen: None };
        let asker = Asker::patient(None, patience(every)).expect("no roots to read");
        assert_eq!(look(&announcement, &asker, &mut [FAILURES - 1]), Ok(()));
        service.join().expect("no panic");
    }

    #[test]
    fn a_link_drains_and_what_it_leads_to_stays_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let [file, text] = ["drain", "text"].map(|name| directory.path().join(name));
        let announcement = Announcement {
            ready: Vec::new(),
            drain: file.clone(),
            every: PATIENCE,
            bird: None,
            track_file: None,
            listen: None,
        };
        let asker = Asker::patient(None, PATIENCE).expect("no roots to read");
        let drained = || look(&announcement, &asker, &mut []).is_err();
        drain(&file, false).expect("nothing is there");
        assert!(!drained());
        drain(&file, true).expect("drained");
        drain(&file, true).expect("drained already");
        assert!(drained());
        drain(&file, false).expect("undrained");
        assert!(!drained());
        // First to nothing, then to a file.
        symlink(&text, &file).expect("a link");
        drain(&file, true).expect("a link is there");
        assert!(drained() && !text.exists());
        fs::write(&text, "text").expect("written");
        drain(&file, true).expect("a link is there");
        assert_eq!(fs::read_to_string(&text).expect("a file"), "text");
        drain(&file, false).expect("undrained");
        assert!(!drained() && text.exists());
    }
}
