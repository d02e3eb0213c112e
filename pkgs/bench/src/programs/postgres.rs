//! A PostgreSQL for one test or bench, from Debian's packages or `PATH`, which ends with its handle.

use std::cmp::Reverse;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{StatVfs, statvfs};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::error::Error;
use crate::server::signal;
use crate::usage::{Usage, descendants};

/// How long it may take to start, including recovery after a crash, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often to check whether PostgreSQL has started.
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The Debian package.
const PACKAGE: &str = "postgresql";

/// Who runs it when root may not (PostgreSQL refuses root): the package's user, or else nobody.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// What a crash may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Anything: nothing is synced, for tests and benches of other things.
    None,
    /// Nothing that was committed, as long as the machine goes on: nothing is synced, for tests that kill processes.
    /// Otherwise each recovery syncs all files of the cluster.
    Machine,
    /// Nothing that was committed. This is PostgreSQL's default.
    Full,
}

/// Where a tmpfs usually is: creating a database makes 300 files, which takes a disk's file system several times as long.
const MEMORY: &str = "/dev/shm";

/// Free space in it, in bytes, from which on clusters that nothing has to outlive go there: a test has a few of them, of
/// some 40 MiB each, and there are several tests at a time.
const ENOUGH_MEMORY: u64 = 4 << 30;

/// The end of its socket's name; the socket has its own directory.
const PORT: &str = "5432";

/// A PostgreSQL that only listens on a Unix socket. Everybody is let in as `postgres`.
pub struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    settings: Vec<String>,
    process: Option<Child>,
}

impl Postgres {
    /// Creates a cluster in a temporary directory and starts it. `settings` are lines of `postgresql.conf`, such as
    /// `shared_buffers=256MB`.
    ///
    /// # Errors
    /// When PostgreSQL is missing and can't be installed, or doesn't start; with what it printed.
    pub fn start(durability: Durability, settings: &[&str]) -> Result<Self, Error> {
        let programs = programs()?;
        let directory = directory(&place(durability))?;
        let mut all: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let off: &[&str] = match durability {
            Durability::None => &["fsync", "synchronous_commit", "full_page_writes"],
            Durability::Machine => &["fsync"],
            Durability::Full => &[],
        };
        all.extend(off.iter().map(|name| format!("{name}=off")));
        let mut postgres = Self { programs, directory, settings: all, process: None };
        let mut initdb = postgres.as_user("initdb");
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "-D",
        ]);
        output(initdb.arg(postgres.data()))?;
        postgres.resume()?;
        Ok(postgres)
    }

    /// A standby that streams from it, with its own socket and its own directory beside the primary's.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn standby(&self) -> Result<Self, Error> {
        let directory = directory(self.directory.path().parent().expect("it is in a directory"))?;
        let mut standby =
            Self { programs: self.programs.clone(), directory, settings: Vec::new(), process: None };
        let mut copy = standby.as_user("pg_basebackup");
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-p", PORT, "-U", "postgres"]);
        output(copy.arg("-h").arg(self.directory.path()).arg("-D").arg(standby.data()))?;
        standby.resume()?;
        Ok(standby)
    }

    /// The URL of `database` for clients on this machine.
    pub fn url(&self, database: &str) -> String {
        let socket = self.directory.path().to_string_lossy().replace('/', "%2F");
        format!("postgres://postgres@{socket}:{PORT}/{database}")
    }

    /// Runs SQL and returns its rows as psql prints them, unformatted.
    ///
    /// # Errors
    /// When psql can't be run or PostgreSQL refuses the statement; with its message.
    pub fn execute(&self, database: &str, sql: &str) -> Result<String, Error> {
        output(self.client("psql", database).args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    }

    /// An empty database.
    ///
    /// # Errors
    /// As [`Postgres::execute`].
    pub fn create_database(&self, name: &str) -> Result<(), Error> {
        self.execute("postgres", &format!("CREATE DATABASE {name}")).map(drop)
    }

    /// Fills a database with pgbench's tables: 100,000 rows.
    ///
    /// # Errors
    /// When pgbench can't be run or fails.
    pub fn fill_pgbench(&self, database: &str) -> Result<(), Error> {
        output(self.pgbench_command().args(["-q", "-i", "-s", "1", database])).map(drop)
    }

    /// Runs pgbench over the Unix socket and returns its transactions per second.
    ///
    /// # Errors
    /// When pgbench can't be run or fails, or prints no figure.
    pub fn pgbench(&self, database: &str, arguments: &[&str]) -> Result<f64, Error> {
        let printed = output(self.pgbench_command().args(arguments).arg(database))?;
        let tps =
            printed.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        tps.ok_or_else(|| Error::Load { server: "pgbench".into(), case: arguments.join(" "), what: printed })
    }

    fn pgbench_command(&self) -> Command {
        let mut pgbench = Command::new(self.programs.join("pgbench"));
        pgbench.arg("-h").arg(self.directory.path()).args(["-p", PORT, "-U", "postgres"]);
        pgbench
    }

    /// Its log since the last start; a statement is logged by the time it is answered.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn logged(&self) -> Result<String, Error> {
        let printed = self.printed();
        fs::read_to_string(&printed).map_err(Error::file(&printed))
    }

    /// What it and the processes of its connections have used so far, without those of closed connections.
    ///
    /// # Errors
    /// When it isn't running.
    pub fn usage(&self) -> Result<Usage, Error> {
        Ok(Usage::of_tree(self.process.as_ref().map_or(0, Child::id))?)
    }

    /// Stops it cleanly, ending all connections.
    pub fn stop(&mut self) {
        // A fast shutdown (postgresql.org/docs/current/server-shutdown.html).
        self.end(Signal::INT);
    }

    /// Kills it and the processes of its connections at once, as the kernel does when memory runs out.
    pub fn kill(&mut self) {
        if let Some(process) = &self.process {
            // Stopped first, so that it starts no other meanwhile.
            signal(process.id(), Signal::STOP);
            descendants(process.id()).into_iter().for_each(|pid| signal(pid, Signal::KILL));
        }
        self.end(Signal::KILL);
    }

    /// Starts it again in the same place, after [`Postgres::stop`] or [`Postgres::kill`].
    ///
    /// # Errors
    /// When it doesn't start; with what it printed.
    pub fn resume(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            match self.try_resume() {
                // The helper processes of a killed server hold its shared memory until they notice its end.
                Err(Error::Failed { output, .. })
                    if output.contains("still in use") && begin.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(PROBE_EVERY);
                }
                result => return result,
            }
        }
    }

    fn try_resume(&mut self) -> Result<(), Error> {
        let printed = self.printed();
        let log = fs::File::create(&printed).map_err(Error::file(&printed))?;
        let mut command = self.as_user("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path());
        command.args(["-p", PORT, "-c", "listen_addresses="]);
        self.settings.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let begin = Instant::now();
        let child = command.spawn().map_err(|source| Error::Run { program: "postgres".into(), source })?;
        let process = self.process.insert(child);
        let said = || fs::read_to_string(&printed).unwrap_or_default();
        let mut ready = Command::new(self.programs.join("pg_isready"));
        ready.arg("-q").arg("-h").arg(self.directory.path()).args(["-p", PORT]);
        while !ready.status().is_ok_and(|status| status.success()) {
            if let Some(status) = process.try_wait()? {
                return Err(Error::Failed { program: "postgres".into(), status, output: said() });
            }
            if begin.elapsed() > PATIENCE {
                return Err(Error::NotReady { server: "postgres".into(), waited: PATIENCE, output: said() });
            }
            std::thread::sleep(PROBE_EVERY);
        }
        Ok(())
    }

    /// Where its log is.
    fn printed(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// One of PostgreSQL's programs, run by a user who may run it.
    fn as_user(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // Not in the caller's directory, which the user may not be able to enter.
        command.current_dir(self.directory.path()).env("LC_ALL", "C");
        if let Some((user, group)) = unprivileged() {
            command.uid(user).gid(group);
        }
        command
    }

    fn client(&self, program: &str, database: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-d").arg(self.url(database));
        command
    }

    fn end(&mut self, how: Signal) {
        let Some(mut process) = self.process.take() else { return };
        signal(process.id(), how);
        let deadline = Instant::now() + PATIENCE;
        while matches!(process.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                descendants(process.id()).into_iter().for_each(|pid| signal(pid, Signal::KILL));
                let _ = process.kill();
                let _ = process.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An immediate shutdown: nobody will read the data again.
        self.end(Signal::QUIT);
    }
}

/// Where a cluster goes.
fn place(durability: Durability) -> PathBuf {
    let is_free = |found: StatVfs| found.f_bavail * found.f_frsize >= ENOUGH_MEMORY;
    match durability {
        Durability::None | Durability::Machine if statvfs(MEMORY).is_ok_and(is_free) => PathBuf::from(MEMORY),
        _ => std::env::temp_dir(),
    }
}

/// A new directory at `place` that the user who runs PostgreSQL can use.
fn directory(place: &Path) -> Result<TempDir, Error> {
    let directory = tempfile::Builder::new().prefix("pg").tempdir_in(place)?;
    if let Some((user, group)) = unprivileged() {
        chown(directory.path(), Some(user), Some(group)).map_err(Error::file(directory.path()))?;
    }
    Ok(directory)
}

/// The directory of the newest version's programs, or else of those in `PATH`, where Nix has them.
fn programs() -> Result<PathBuf, Error> {
    let newest = || {
        let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut versions: Vec<PathBuf> =
            versions.filter(|path| path.join("bin/postgres").is_file()).collect();
        versions.sort_by_key(|path| Reverse(version(path)));
        let in_path = || Some(crate::setup::find("postgres")?.parent()?.to_owned());
        versions.first().map(|path| path.join("bin")).or_else(in_path)
    };
    if newest().is_none() {
        crate::setup::install(PACKAGE)?;
    }
    newest().ok_or(Error::Missing { program: "postgres", package: PACKAGE })
}

fn version(directory: &Path) -> u32 {
    directory.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// The ids of a user and its group, if this process is root's.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    USERS.iter().find_map(|user| account(&accounts, user))
}

/// User and group of an account in passwd(5).
fn account(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields =
        accounts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Runs a program to its end and returns what it printed.
fn output(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(source) => return Err(Error::Run { program, source }),
    };
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let output_text = format!("{printed}\n{}", String::from_utf8_lossy(&output.stderr)).trim().to_owned();
    Err(Error::Failed { program, status: output.status, output: output_text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_survives_a_kill() {
        let mut postgres = Postgres::start(Durability::Full, &["max_connections=20"]).expect("it starts");
        postgres.create_database("other").expect("it is new");
        let count =
            |postgres: &Postgres| postgres.execute("other", "SELECT count(*) FROM t").expect("t is there");
        postgres.execute("other", "CREATE TABLE t AS SELECT generate_series(1, 3)").expect("it is new");
        assert_eq!(postgres.execute("other", "SHOW max_connections").expect("a setting"), "20");
        postgres.kill();
        assert!(postgres.execute("other", "SELECT 1").is_err(), "nobody answers");
        postgres.resume().expect("it recovers");
        assert_eq!(count(&postgres), "3");
        postgres.stop();
        postgres.resume().expect("it starts");
        assert_eq!(count(&postgres), "3");
        assert!(postgres.usage().expect("it runs").resident > 0);
        let Err(Error::Failed { output, .. }) = postgres.execute("other", "SELECT nonsense") else {
            panic!("there is no such column");
        };
        assert!(output.contains("nonsense"), "{output}");
    }

    #[test]
    fn an_account_has_a_user_and_a_group() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib:/bin/bash\n";
        assert_eq!(account(accounts, "postgres"), Some((101, 104)));
        assert_eq!(account(accounts, "post"), None);
    }
}
