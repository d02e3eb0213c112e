//! Writes a single setting. Distinguishes permanent errors, transient errors, and interrupts that the kernel manages
//! itself.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::cpus::Cpus;
use crate::nic::setting::{Setting, Subject};
use crate::system::System;

/// How often to try a write that fails with a transient error.
pub const ATTEMPTS: u32 = 5;

/// The pause before the second attempt. It doubles before each further attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The setting is in effect.
    Done,
    /// The setting is in effect, but the interrupt moves only when it next occurs. Until then,
    /// `effective_affinity_list` has the old CPU.
    Pending,
    /// The kernel manages this interrupt itself.
    Managed,
}

/// Why a setting can't be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CPU has no interrupt vectors left.
    #[error("{path}: CPUs {cpus} have no interrupt vector left (ENOSPC): use fewer queues or other CPUs")]
    NoVector {
        /// The file.
        path: String,
        /// The CPUs.
        cpus: Cpus,
    },
    /// This user may not write it.
    #[error("{path}: permission denied: only root may place queues")]
    Denied {
        /// The file.
        path: String,
    },
    /// Any other error of the kernel; a transient error after all attempts.
    #[error("{path}: {source}")]
    Refused {
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// The write was accepted but has no effect.
    #[error("{path}: {wanted} was written, but it reads {found:?}")]
    Different {
        /// The file.
        path: String,
        /// What was written.
        wanted: String,
        /// What it contains.
        found: String,
    },
}

/// Writes a setting's planned value and reads it back.
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

/// Restores the content of a file, byte for byte.
pub fn restore(system: &dyn System, path: &str, content: &str) -> Result<(), Error> {
    let failed = |source| Error::Refused { path: path.to_owned(), source };
    patiently(system, path, content.trim_end()).map_err(failed)?;
    let found = read(system, path)?;
    if found == content {
        return Ok(());
    }
    Err(Error::Different { path: path.to_owned(), wanted: content.trim_end().to_owned(), found })
}

/// Whether an interrupt is already served by its planned CPUs. If the kernel doesn't report that, it counts as moved.
pub fn moved(system: &dyn System, setting: &Setting) -> bool {
    let path = setting.path.replace("smp_affinity_list", "effective_affinity_list");
    let effective = system.read(&path).ok().and_then(|text| text.parse::<Cpus>().ok());
    effective.is_none_or(|cpus| cpus.is_subset(&setting.wanted))
}

fn read(system: &dyn System, path: &str) -> Result<String, Error> {
    system.read(path).map_err(|source| Error::Refused { path: path.to_owned(), source })
}

/// Writes, and tries again after a transient error.
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
