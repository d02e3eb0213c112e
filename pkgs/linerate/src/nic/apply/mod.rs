//! Applies a plan, verifies it, and undoes it.

pub mod saved;
pub mod watch;
pub mod write;

use std::io;
use std::time::Duration;

use serde::Serialize;

use crate::nic::device::{Device, queue_path};
use crate::nic::plan::Steering;
use crate::nic::rings::{self, RingSizes};
use crate::nic::setting::{Setting, Subject};
use crate::nic::{PlacementPlan, PlacementRequest, Rss, irqbalance, place};
use crate::system::{Rings, System};
use crate::topology::Topology;

use saved::{Key, Original, Saved, Store};
use write::{Written, restore, write};

/// Why a plan wasn't applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another program would move the interrupts away again.
    #[error(
        "irqbalance (process {0}) runs and would move the interrupts away again: stop it first, systemctl disable \
         --now irqbalance"
    )]
    Irqbalance(u32),
    /// There is no plan for the interface.
    #[error(transparent)]
    Nic(#[from] crate::nic::Error),
    /// The driver refuses to change the channels or the RSS table.
    #[error("{interface}: {what}: {source}; nothing is changed")]
    Driver {
        /// The interface.
        interface: String,
        /// What was requested.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// The queues didn't come back after the channels were set.
    #[error("{interface} shows {found} queues after {wanted} channels were set; nothing is changed")]
    Missing {
        /// The interface.
        interface: String,
        /// How many there should be.
        wanted: u32,
        /// How many there are.
        found: usize,
    },
    /// The current settings can't be saved, so nothing is changed.
    #[error(transparent)]
    Saved(#[from] saved::Error),
    /// A write failed, and everything has been restored.
    #[error("{0}; nothing is changed")]
    RolledBack(#[source] write::Error),
    /// A write failed, and some settings couldn't be restored.
    #[error("{cause}; of what was changed {left} settings could not be put back, the first: {first}")]
    HalfWay {
        /// What failed first.
        cause: Box<Error>,
        /// How many settings couldn't be restored.
        left: usize,
        /// The reason for the first of them.
        first: Box<write::Error>,
    },
}

/// Why not everything was restored.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The interface can't be read.
    #[error(transparent)]
    Nic(#[from] crate::nic::Error),
    /// The driver refuses the original channels or RSS table.
    #[error("{interface}: {what} could not be put back: {source}")]
    Driver {
        /// The interface.
        interface: String,
        /// The original setting.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The saved settings can't be read or deleted.
    #[error(transparent)]
    Saved(#[from] saved::Error),
    /// The kernel refuses some of the original settings, which stay saved.
    #[error("{interface}: {left} settings could not be put back, the first: {first}")]
    Kept {
        /// The interface.
        interface: String,
        /// How many there are.
        left: usize,
        /// The reason for the first of them.
        first: write::Error,
    },
}

/// What was done to an interface.
#[derive(Debug, Serialize)]
pub struct Applied {
    /// Its name.
    pub interface: String,
    /// The channels that were set, if they were different.
    pub channels: Option<u32>,
    /// Rings that were set again, because changing the channels had reset them.
    pub rings: Option<Rings>,
    /// Whether the RSS table was written anew.
    pub rss: bool,
    /// Whether the driver refuses an even RSS table; the table is left alone.
    pub rss_refused: bool,
    /// What was changed.
    pub changed: Vec<Setting>,
    /// How many settings were already right.
    pub held: usize,
    /// Interrupts that the kernel manages itself, by action; they are left alone.
    pub managed: Vec<String>,
    /// Interrupts that move to their new CPU when they next occur, by action.
    pub pending: Vec<String>,
}

impl Applied {
    /// Whether anything was changed.
    pub fn anything(&self) -> bool {
        self.channels.is_some() || self.rings.is_some() || self.rss || !self.changed.is_empty()
    }
}

/// Applies a plan, either completely or not at all. Settings that already match aren't written.
///
/// Channels come first, since changing them resets the queues' settings and the RSS table. Rings come second, since
/// changing them resets the queues' settings too.
pub fn apply(
    system: &dyn System,
    store: &Store,
    topology: &Topology,
    interface: &str,
    wish: &PlacementRequest,
) -> Result<Applied, Error> {
    if let Some(pid) = irqbalance(system) {
        return Err(Error::Irqbalance(pid));
    }
    let mut placed = place(system, topology, interface, wish)?;
    let before = store.load(interface)?;
    let mut saved = before.clone().unwrap_or_else(|| Saved::new(interface));
    saved.policy = placed.plan.policy.to_string();
    saved.steering = wish.steering == Steering::Auto;
    saved.queues = wish.queues;
    saved.managed.clear();
    let mut run = Run { system, store, interface, before, settings: Vec::new(), seen: None, rss: None };
    let mut kept = None;
    if let Some(wanted) = placed.channels(wish) {
        let now = placed.device.channels.map_or(0, |channels| channels.combined);
        // Save all settings, not only the wrong ones: the restart resets all of them.
        placed.settings.iter().for_each(|setting| saved.keep(setting));
        saved.channels.get_or_insert(now);
        if let Some(rss) = &placed.rss {
            saved.indirection.get_or_insert_with(|| rss.now.clone());
        }
        store.save(&saved)?;
        run.settings = placed.settings;
        run.rss = placed.rss.map(|rss| rss.now);
        // The kernel refuses channels that a user-set RSS table doesn't fit, so the table is reset to the default
        // first.
        let default = if run.rss.is_some() { Rss::reset(system, interface) } else { Ok(true) };
        let seen = RingSizes::now(system, interface);
        if let Err(source) = default.and_then(|_| system.set_channels(interface, wanted)) {
            let what = format!("{wanted} channels");
            return Err(run.take_back(Error::Driver { interface: interface.to_owned(), what, source }));
        }
        run.seen = Some((now, seen.clone()));
        kept = match seen.map_or(Ok(None), |seen| seen.put_back(system, interface)) {
            Ok(rings) => rings,
            Err(source) => {
                let what = format!("rings as they were before {wanted} channels");
                return Err(run.take_back(Error::Driver { interface: interface.to_owned(), what, source }));
            }
        };
        placed = match restarted(system, topology, interface, wish, wanted) {
            Ok(placed) => placed,
            Err(error) => return Err(run.take_back(error)),
        };
    }
    let mut applied = Applied {
        interface: interface.to_owned(),
        channels: run.seen.as_ref().and(wish.queues),
        rings: kept,
        rss: false,
        rss_refused: false,
        changed: Vec::new(),
        held: 0,
        managed: Vec::new(),
        pending: Vec::new(),
    };
    let PlacementPlan { settings, rss, .. } = placed;
    let (held, wrong): (Vec<Setting>, Vec<Setting>) = settings.into_iter().partition(Setting::holds);
    applied.held = held.len();
    wrong.iter().for_each(|setting| saved.keep(setting));
    let rss = rss.filter(|rss| !rss.holds());
    if let Some(rss) = &rss {
        saved.indirection.get_or_insert_with(|| rss.now.clone());
    }
    // Save before the first change, so that undo works even after a crash.
    store.save(&saved)?;
    if let Some(Rss { now, .. }) = rss {
        applied.rss = match Rss::reset(system, interface) {
            Ok(reset) => reset,
            Err(source) => {
                let what = "an even RSS table".to_owned();
                return Err(run.take_back(Error::Driver { interface: interface.to_owned(), what, source }));
            }
        };
        applied.rss_refused = !applied.rss;
        run.rss.get_or_insert(now);
    }
    for setting in wrong {
        match write(system, &setting) {
            Ok(Written::Managed) => applied.managed.extend(action(&setting)),
            Ok(Written::Pending) => {
                applied.pending.extend(action(&setting));
                run.settings.push(setting.clone());
                applied.changed.push(setting);
            }
            Ok(Written::Done) => {
                run.settings.push(setting.clone());
                applied.changed.push(setting);
            }
            Err(cause) => {
                // The setting may have changed even if it reads back differently.
                if matches!(cause, write::Error::Different { .. }) {
                    run.settings.push(setting);
                }
                return Err(run.take_back(Error::RolledBack(cause)));
            }
        }
    }
    saved.managed.clone_from(&applied.managed);
    store.save(&saved)?;
    Ok(applied)
}

/// How often to check whether the queues are back, and the pause between checks.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// Waits for the queues of the new channels, and plans again.
fn restarted(
    system: &dyn System,
    topology: &Topology,
    interface: &str,
    wish: &PlacementRequest,
    wanted: u32,
) -> Result<PlacementPlan, Error> {
    let mut found = 0;
    for _ in 0..LOOKS {
        let placed = place(system, topology, interface, wish)?;
        found = placed.device.queues.len();
        if found == wanted as usize {
            return Ok(placed);
        }
        system.pause(BETWEEN);
    }
    Err(Error::Missing { interface: interface.to_owned(), wanted, found })
}

/// What one run has changed, with the original values, so that it can be restored.
struct Run<'a> {
    system: &'a dyn System,
    store: &'a Store,
    interface: &'a str,
    before: Option<Saved>,
    settings: Vec<Setting>,
    /// The original number of channels, and the original rings if the driver reports them; none if channels weren't
    /// changed.
    seen: Option<(u32, Option<RingSizes>)>,
    rss: Option<Vec<u32>>,
}

impl Run<'_> {
    /// Restores everything, and returns the error of the run.
    fn take_back(self, cause: Error) -> Error {
        let Self { system, store, interface, before, settings, seen, rss } = self;
        let driver = |what: &str, done: io::Result<()>| {
            done.err().map(|source| write::Error::Refused { path: format!("{what} of {interface}"), source })
        };
        let mut failed: Vec<write::Error> = Vec::new();
        if let Some((count, seen)) = seen {
            failed.extend(driver("channels", system.set_channels(interface, count)));
            let rings = seen.map_or(Ok(None), |seen| seen.put_back(system, interface));
            failed.extend(driver("rings", rings.map(drop)));
        }
        if let Some(table) = rss.filter(|table| system.indirection(interface).is_ok_and(|now| now != *table))
        {
            failed.extend(driver("the RSS table", Rss::restore(system, interface, &table)));
        }
        // After a change of channels, interrupts may have other numbers, so they are found by action.
        let device = Device::read(system, interface).ok();
        for setting in settings.iter().rev() {
            let path = device.as_ref().and_then(|device| path(device, &Key::of(setting)));
            let path = path.unwrap_or_else(|| setting.path.clone());
            let differs = system.read(&path).map_or(true, |now| now != setting.content);
            failed.extend(differs.then(|| restore(system, &path, &setting.content).err()).flatten());
        }
        let left = failed.len();
        if let Some(first) = failed.into_iter().next() {
            return Error::HalfWay { cause: Box::new(cause), left, first: Box::new(first) };
        }
        let kept = match before {
            Some(before) => store.save(&before),
            None => store.forget(interface),
        };
        kept.map_or_else(Error::Saved, |()| cause)
    }
}

/// The action of a setting's interrupt.
fn action(setting: &Setting) -> Option<String> {
    match &setting.subject {
        Subject::Irq { action, .. } => Some(action.clone()),
        Subject::Rps | Subject::Xps => None,
    }
}

/// What was undone.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// The interface.
    pub interface: String,
    /// The channels that were restored, if they were different.
    pub channels: Option<u32>,
    /// Whether the RSS table was restored.
    pub rss: bool,
    /// Files that were restored.
    pub restored: Vec<String>,
    /// Settings that no longer exist, such as the interrupt of an unused queue.
    pub gone: Vec<Key>,
}

/// Restores everything to its state before the first change, and deletes what was saved.
pub fn undo(system: &dyn System, store: &Store, interface: &str) -> Result<Undone, UndoError> {
    let mut undone = Undone { interface: interface.to_owned(), ..Undone::default() };
    let Some(mut saved) = store.load(interface)? else { return Ok(undone) };
    let refused = |what| move |source| UndoError::Driver { interface: interface.to_owned(), what, source };
    if let Some(count) = saved.channels {
        let now = system.channels(interface).map_or(0, |channels| channels.combined);
        if now != count {
            if saved.indirection.is_some() {
                Rss::reset(system, interface).map_err(refused("the RSS table"))?;
            }
            rings::set_channels(system, interface, count).map_err(refused("the channels and rings"))?;
            undone.channels = Some(count);
        }
    }
    if let Some(table) = &saved.indirection {
        let now = system.indirection(interface).map_err(refused("the RSS table"))?;
        if now != *table {
            Rss::restore(system, interface, table).map_err(refused("the RSS table"))?;
            undone.rss = true;
        }
    }
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

/// A setting's current path.
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

/// How an interface differs from its plan.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// The interface.
    pub interface: String,
    /// The policy.
    pub policy: String,
    /// How many settings are as planned.
    pub held: usize,
    /// Whether some queue has at least two more entries in the RSS table than another.
    pub uneven: bool,
    /// The requested number of channels, if the interface has another number.
    pub channels: Option<u32>,
    /// Settings that differ.
    pub drifted: Vec<Setting>,
    /// Interrupts that the kernel manages itself, by action.
    pub managed: Vec<String>,
    /// Interrupts that move to their new CPU when they next occur, by action.
    pub pending: Vec<String>,
}

impl Verified {
    /// How many things differ from the plan.
    pub fn wrong(&self) -> usize {
        self.drifted.len() + usize::from(self.uneven) + usize::from(self.channels.is_some())
    }
}

/// Compares an interface with its plan, without changing anything.
pub fn verify(system: &dyn System, placed: &PlacementPlan, saved: Option<&Saved>) -> Verified {
    let managed = saved.map_or(&[][..], |saved| &saved.managed);
    let mut verified = Verified {
        interface: placed.device.interface.clone(),
        policy: placed.plan.policy.to_string(),
        held: 0,
        uneven: placed.rss.as_ref().is_some_and(|rss| !rss.holds()),
        channels: saved
            .and_then(|saved| saved.queues)
            .filter(|&wanted| placed.device.channels.map(|channels| channels.combined) != Some(wanted)),
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
