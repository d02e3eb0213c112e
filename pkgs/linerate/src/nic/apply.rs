//! A plan made true, checked, and taken back.

use serde::Serialize;

use super::device::{Device, queue_path};
use super::plan::Steering;
use super::saved::{self, Key, Original, Saved, Store};
use super::setting::{Setting, Subject};
use super::write::{self, Written, restore, write};
use super::{Placed, irqbalance};
use crate::system::System;

/// Why a plan is not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something else would move the interrupts away again.
    #[error(
        "irqbalance (process {0}) runs and would move the interrupts away again: stop it first, systemctl disable \
         --now irqbalance"
    )]
    Irqbalance(u32),
    /// What is there cannot be kept, so nothing is changed.
    #[error(transparent)]
    Saved(#[from] saved::Error),
    /// A write failed; everything that was changed is as it was.
    #[error("{0}; nothing is changed")]
    RolledBack(#[source] write::Error),
    /// A write failed, and so did going back.
    #[error("{cause}; of what was changed {left} settings could not be put back, the first: {first}")]
    HalfWay {
        /// What failed first.
        cause: Box<write::Error>,
        /// How many could not be put back.
        left: usize,
        /// Why.
        first: Box<write::Error>,
    },
}

/// Why not everything is put back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The interface cannot be read.
    #[error(transparent)]
    Nic(#[from] super::Error),
    /// What was kept cannot be read or forgotten.
    #[error(transparent)]
    Saved(#[from] saved::Error),
    /// The kernel refuses some of it, which is still kept.
    #[error("{interface}: {left} settings could not be put back, the first: {first}")]
    Kept {
        /// Of which interface.
        interface: String,
        /// How many.
        left: usize,
        /// Why.
        first: write::Error,
    },
}

/// What was done with an interface.
#[derive(Debug, Serialize)]
pub struct Applied {
    /// Which.
    pub interface: String,
    /// What was changed.
    pub changed: Vec<Setting>,
    /// How many settings were as they should be.
    pub held: usize,
    /// Interrupts that the kernel manages itself, by action: left alone.
    pub managed: Vec<String>,
    /// Interrupts that move when they come next, by action.
    pub pending: Vec<String>,
}

/// Applies a plan: all of it, or nothing. What is as planned is not written.
pub fn apply(
    system: &dyn System,
    store: &Store,
    placed: &Placed,
    steering: Steering,
) -> Result<Applied, Error> {
    if let Some(pid) = irqbalance(system) {
        return Err(Error::Irqbalance(pid));
    }
    let Placed { device, plan, settings } = placed;
    let interface = &device.interface;
    let before = store.load(interface)?;
    let mut saved = before.clone().unwrap_or_else(|| Saved::new(interface));
    saved.policy = plan.policy.to_string();
    saved.steering = steering == Steering::Auto;
    saved.managed.clear();
    let (held, wrong): (Vec<&Setting>, Vec<&Setting>) = settings.iter().partition(|setting| setting.holds());
    wrong.iter().for_each(|setting| saved.keep(setting));
    // Before the first change, so that a crash leaves what undo needs.
    store.save(&saved)?;
    let mut applied = Applied {
        interface: interface.clone(),
        changed: Vec::new(),
        held: held.len(),
        managed: Vec::new(),
        pending: Vec::new(),
    };
    for setting in wrong {
        match write(system, setting) {
            Ok(Written::Managed) => applied.managed.extend(action(setting)),
            Ok(Written::Pending) => {
                applied.pending.extend(action(setting));
                applied.changed.push(setting.clone());
            }
            Ok(Written::Done) => applied.changed.push(setting.clone()),
            Err(cause) => {
                // What reads back differently was changed all the same.
                let last = matches!(cause, write::Error::Different { .. }).then_some(setting);
                let written = applied.changed.iter().chain(last).rev();
                return Err(take_back(system, store, interface, before, written, cause));
            }
        }
    }
    saved.managed.clone_from(&applied.managed);
    store.save(&saved)?;
    Ok(applied)
}

/// Puts back what one run has changed, and says how it failed.
fn take_back<'a>(
    system: &dyn System,
    store: &Store,
    interface: &str,
    before: Option<Saved>,
    written: impl Iterator<Item = &'a Setting>,
    cause: write::Error,
) -> Error {
    let failed = written.filter_map(|setting| restore(system, &setting.path, &setting.content).err());
    let failed: Vec<write::Error> = failed.collect();
    let left = failed.len();
    if let Some(first) = failed.into_iter().next() {
        return Error::HalfWay { cause: Box::new(cause), left, first: Box::new(first) };
    }
    let kept = match before {
        Some(before) => store.save(&before),
        None => store.forget(interface),
    };
    kept.map_or_else(Error::Saved, |()| Error::RolledBack(cause))
}

/// The name of a setting's interrupt.
fn action(setting: &Setting) -> Option<String> {
    match &setting.subject {
        Subject::Irq { action, .. } => Some(action.clone()),
        Subject::Rps | Subject::Xps => None,
    }
}

/// What was taken back.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// Of which interface.
    pub interface: String,
    /// Files that are again as they were.
    pub restored: Vec<String>,
    /// What is not there any more, such as an interrupt of a queue that is no longer in use.
    pub gone: Vec<Key>,
}

/// Puts everything back as it was before the first change, and forgets it.
pub fn undo(system: &dyn System, store: &Store, interface: &str) -> Result<Undone, UndoError> {
    let mut undone = Undone { interface: interface.to_owned(), ..Undone::default() };
    let Some(mut saved) = store.load(interface)? else { return Ok(undone) };
    let device = Device::read(system, interface)?;
    let mut failed = Vec::new();
    let mut left = Vec::new();
    for original in saved.originals {
        let path = path(&device, &original.key);
        let Some((path, content)) = path.and_then(|path| system.read(&path).ok().map(|now| (path, now)))
        else {
            undone.gone.push(original.key);
            continue;
        };
        let Original { content: wanted, .. } = &original;
        if content == *wanted {
            continue;
        }
        match restore(system, &path, wanted) {
            Ok(()) => undone.restored.push(path),
            Err(error) => {
                failed.push(error);
                left.push(original);
            }
        }
    }
    let count = failed.len();
    match failed.into_iter().next() {
        None => store.forget(interface)?,
        Some(first) => {
            saved.originals = left;
            store.save(&saved)?;
            return Err(UndoError::Kept { interface: interface.to_owned(), left: count, first });
        }
    }
    Ok(undone)
}

/// Where a setting is now.
fn path(device: &Device, key: &Key) -> Option<String> {
    match key {
        Key::Irq { action } => {
            let mut interrupts = device.queues.iter().flat_map(|queue| &queue.interrupts);
            let found = interrupts.find(|interrupt| interrupt.action == *action)?;
            Some(format!("/proc/irq/{}/smp_affinity_list", found.irq))
        }
        Key::Rps { queue } => Some(queue_path(&device.interface, "rx", *queue) + "/rps_cpus"),
        Key::Xps { queue } => Some(queue_path(&device.interface, "tx", *queue) + "/xps_cpus"),
    }
}

/// What is not as planned.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// Of which interface.
    pub interface: String,
    /// By which policy.
    pub policy: String,
    /// How many settings are as planned.
    pub held: usize,
    /// Those that are not.
    pub drifted: Vec<Setting>,
    /// Interrupts that the kernel manages itself, by action.
    pub managed: Vec<String>,
    /// Interrupts that move when they come next, by action.
    pub pending: Vec<String>,
}

/// Compares an interface with its plan; changes nothing.
pub fn verify(system: &dyn System, placed: &Placed, saved: Option<&Saved>) -> Verified {
    let managed = saved.map_or(&[][..], |saved| &saved.managed);
    let mut verified = Verified {
        interface: placed.device.interface.clone(),
        policy: placed.plan.policy.to_string(),
        held: 0,
        drifted: Vec::new(),
        managed: Vec::new(),
        pending: Vec::new(),
    };
    for setting in &placed.settings {
        let action = action(setting);
        match &action {
            _ if setting.holds() => {
                verified.held += 1;
                if action.is_some() && !write::moved(system, setting) {
                    verified.pending.extend(action);
                }
            }
            Some(name) if managed.contains(name) => verified.managed.extend(action),
            _ => verified.drifted.push(setting.clone()),
        }
    }
    verified
}
