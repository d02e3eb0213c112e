//! One setting, written: what is refused for good, what only now, and what the kernel keeps for itself.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::cpus::Cpus;
use crate::nic::setting::{Setting, Subject};
use crate::system::System;

/// How often a write is tried that is refused for now.
pub const ATTEMPTS: u32 = 5;

/// How long before the second attempt; twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(10);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It holds.
    Done,
    /// It holds, and the interrupt moves when it comes next: until then `effective_affinity_list` is the old one.
    Pending,
    /// The kernel manages this interrupt itself and does not let go of it.
    Managed,
}

/// Why a setting cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CPU has no interrupt vector left.
    #[error("{path}: CPUs {cpus} have no interrupt vector left (ENOSPC): use fewer queues or other CPUs")]
    NoVector {
        /// Which file.
        path: String,
        /// Which CPUs.
        cpus: Cpus,
    },
    /// Not as this user.
    #[error("{path}: permission denied: only root may place queues")]
    Denied {
        /// Which file.
        path: String,
    },
    /// Whatever else the kernel says, for transient errors after so many attempts.
    #[error("{path}: {source}")]
    Refused {
        /// Which file.
        path: String,
        /// What it says.
        source: io::Error,
    },
    /// It was taken, and is not there.
    #[error("{path}: {wanted} was written, but it reads {found:?}")]
    Different {
        /// Which file.
        path: String,
        /// What was written.
        wanted: String,
        /// What is there.
        found: String,
    },
}

/// Writes what a setting should say and reads it back.
pub fn write(system: &dyn System, setting: &Setting) -> Result<Written, Error> {
    let path = &setting.path;
    let text = setting.subject.spell(&setting.wanted);
    let irq = matches!(setting.subject, Subject::Irq { .. });
    if let Err(error) = patiently(system, path, &text) {
        return match Errno::from_io_error(&error) {
            // EPERM since Linux 6.12, EIO before.
            Some(Errno::PERM | Errno::IO) if irq => Ok(Written::Managed),
            Some(Errno::NOSPC) => Err(Error::NoVector { path: path.clone(), cpus: setting.wanted.clone() }),
            Some(Errno::ACCESS) => Err(Error::Denied { path: path.clone() }),
            _ => Err(Error::Refused { path: path.clone(), source: error }),
        };
    }
    let found = read(system, path)?;
    if setting.subject.understand(&found).as_ref() != Ok(&setting.wanted) {
        return Err(Error::Different { path: path.clone(), wanted: text, found });
    }
    Ok(if irq && !moved(system, setting) { Written::Pending } else { Written::Done })
}

/// Puts back what was in a file, byte for byte.
pub fn restore(system: &dyn System, path: &str, content: &str) -> Result<(), Error> {
    let failed = |source| Error::Refused { path: path.to_owned(), source };
    patiently(system, path, content.trim_end()).map_err(failed)?;
    let found = read(system, path)?;
    if found == content {
        return Ok(());
    }
    Err(Error::Different { path: path.to_owned(), wanted: content.trim_end().to_owned(), found })
}

/// Whether an interrupt is served where it should be, as far as the kernel tells.
pub fn moved(system: &dyn System, setting: &Setting) -> bool {
    let path = setting.path.replace("smp_affinity_list", "effective_affinity_list");
    let effective = system.read(&path).ok().and_then(|text| text.parse::<Cpus>().ok());
    effective.is_none_or(|cpus| cpus.is_subset(&setting.wanted))
}

fn read(system: &dyn System, path: &str) -> Result<String, Error> {
    system.read(path).map_err(|source| Error::Refused { path: path.to_owned(), source })
}

/// Writes; tries again where the kernel is busy with something that passes.
fn patiently(system: &dyn System, path: &str, text: &str) -> io::Result<()> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match system.write(path, text) {
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::BUSY | Errno::AGAIN | Errno::NOMEM)
                ) =>
            {
                system.pause(pause);
                pause *= 2;
            }
            written => return written,
        }
    }
    system.write(path, text)
}
