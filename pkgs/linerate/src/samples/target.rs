//! Which processes to record.

use super::Error;
use crate::nic::services::processes;
use crate::system::{System, name_of};

/// The most threads, since each has its own event and ring.
const MOST_THREADS: usize = 512;

/// Which processes to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Those of a service, by its unit's or program's name: `links`, `linerate-links`, `nginx.service`.
    Service(String),
    /// A single process.
    Process(u32),
    /// All processes, and the kernel.
    Machine,
}

impl Target {
    /// The target's current processes; empty for the whole machine.
    pub(super) fn processes(&self, system: &dyn System) -> Result<Vec<u32>, Error> {
        match self {
            Self::Machine => Ok(Vec::new()),
            Self::Process(pid) => match system.list(&format!("/proc/{pid}/task")) {
                Ok(_) => Ok(vec![*pid]),
                Err(_) => Err(Error::NoProcess(*pid)),
            },
            Self::Service(name) => {
                let found = of_service(system, name);
                if found.is_empty() { Err(Error::NoService(name.clone())) } else { Ok(found) }
            }
        }
    }

    /// The threads of these processes.
    pub(super) fn threads(system: &dyn System, processes: &[u32]) -> Result<Vec<u32>, Error> {
        let tasks =
            processes.iter().flat_map(|pid| system.list(&format!("/proc/{pid}/task")).unwrap_or_default());
        let threads: Vec<u32> = tasks.filter_map(|thread| thread.parse().ok()).collect();
        match threads.len() {
            found if found > MOST_THREADS => Err(Error::Many { what: "threads:", most: MOST_THREADS, found }),
            _ => Ok(threads),
        }
    }

    /// Whether this process was requested by its ID.
    pub(super) fn names(&self, pid: u32) -> bool {
        *self == Self::Process(pid)
    }
}

/// Whether a text can be the name of a unit or program, and can't be a path.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:\\".contains(&byte);
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name.bytes().all(plain)
}

/// The processes of a unit. If there is no such unit, the processes of a program with this name: `linerate up` runs
/// services without units.
fn of_service(system: &dyn System, name: &str) -> Vec<u32> {
    if !is_name(name) {
        return Vec::new();
    }
    let base = name.strip_suffix(".service").unwrap_or(name);
    let names = [base.to_owned(), format!("linerate-{base}")];
    for name in &names {
        let found = processes(system, &format!("{name}.service"));
        if !found.is_empty() {
            return found;
        }
    }
    let numbers = system.list("/proc").unwrap_or_default();
    let is_meant = |pid: &u32| {
        // Compare with the name in the command line, since `comm` has only 15 bytes.
        let line = system.read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split('\0');
        let program = words.next().map(|path| name_of(path.trim_end())).unwrap_or_default();
        names.iter().any(|name| name == program)
            || program == "linerate"
                && base.trim_start_matches("linerate-") == "console"
                && words.next() == Some("console")
    };
    numbers.iter().filter_map(|number| number.parse().ok()).filter(is_meant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    #[test]
    fn a_service_is_its_units_processes_or_those_of_its_program() {
        let machine: Recorded = "\
/sys/fs/cgroup/system.slice/linerate-links.service/cgroup.procs = 7\\n9
/sys/fs/cgroup/system.slice/sshd.service/cgroup.procs = 8
/proc/7/cmdline = /bin/linerate-links
/proc/7/task/7/status =
/proc/9/task/9/status =
/proc/9/task/10/status =
/proc/11/cmdline = /target/linerate-files
/proc/12/cmdline = sleep
"
        .parse()
        .expect("a machine");
        for (name, expected) in [
            ("sshd", &[8][..]),
            ("sshd.service", &[8]),
            ("files", &[11]),
            ("linerate-files", &[11]),
            ("sleep", &[12]),
            ("nobody", &[]),
            ("../../../proc", &[]),
            ("a/b", &[]),
            ("", &[]),
        ] {
            let found = Target::Service(name.into()).processes(&machine);
            assert_eq!(found.unwrap_or_default(), expected, "{name}");
        }
        assert_eq!(Target::threads(&machine, &[9]).expect("threads"), [10, 9]);
        assert!(matches!(Target::Process(99).processes(&machine), Err(Error::NoProcess(99))));
    }
}
