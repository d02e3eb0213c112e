//! Moves a wave's branch to the commit of the previous wave, once that wave has been healthy long enough.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Error as FleetError;
use super::ask::Asker;
use super::health::{self, Expected};
use super::node::{self, Report};
use super::refs::Repository;
use super::settings::{RefName, Settings};

/// Why a branch wasn't moved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such wave.
    #[error("there is no wave {wave}; there are {waves}")]
    NoWave {
        /// The requested wave.
        wave: RefName,
        /// The existing waves.
        waves: String,
    },
    /// Somebody has halted all waves.
    #[error("halted: {0}; linerate fleet resume lets waves go on")]
    Halted(String),
    /// The wave has commits that the previous wave doesn't have.
    #[error("{wave} is at {at}, which {from} does not have: a wave goes forward only")]
    Apart {
        /// The wave.
        wave: RefName,
        /// Its commit.
        at: String,
        /// The one before it.
        from: RefName,
    },
    /// No node runs the commit, so nothing shows that it works.
    #[error("no node follows {0}, so nothing shows that it is well")]
    NoNodes(RefName),
    /// The previous wave isn't healthy.
    #[error("{wave} stays: {node} of {from}: {why}")]
    Unhealthy {
        /// The wave that stays.
        wave: RefName,
        /// The one that isn't healthy.
        from: RefName,
        /// Its node.
        node: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody moved the previous wave in the meantime.
    #[error("{from} was moved while it was watched: begin again")]
    Moved {
        /// That wave.
        from: RefName,
    },
}

impl Error {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoWave { .. } | Self::NoNodes(_))
    }
}

/// The outcome.
#[derive(Debug, Serialize)]
pub struct Promoted {
    /// The wave.
    pub wave: RefName,
    /// Where it was; none if it is new.
    pub was: Option<String>,
    /// Where it is now.
    pub is: String,
    /// How long the previous wave was observed to be healthy, in seconds.
    pub well_for_seconds: u64,
}

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// How long the previous wave has to be healthy.
    pub well_for: Duration,
    /// How often it is checked.
    pub every: Duration,
}

/// Watches the previous wave, and then moves this one. Calls `said` with the remaining time at each check.
///
/// # Errors
/// When the previous wave isn't healthy at some check, somebody halts the waves, or git refuses. Then nothing has been
/// moved.
pub fn promote(
    settings: &Settings,
    wave: &RefName,
    watch: Watch,
    mut said: impl FnMut(Duration),
) -> Result<Promoted, FleetError> {
    let from = settings.before(wave).ok_or_else(|| Error::NoWave {
        wave: wave.clone(),
        waves: settings.waves.iter().map(RefName::as_str).collect::<Vec<_>>().join(", "),
    })?;
    let repository = Repository::new(&settings.repository);
    let not_halted = || repository.halted()?.map_or(Ok(()), |why| Err(FleetError::from(Error::Halted(why))));
    not_halted()?;
    let is = repository.expect(from)?;
    let was = repository.commit(wave)?;
    if let Some(at) = &was
        && !repository.follows(&is, at)?
    {
        let at = health::short(at).to_owned();
        return Err(Error::Apart { wave: wave.clone(), at, from: from.clone() }.into());
    }
    let mut well_for = Duration::ZERO;
    // No node runs the source itself, so there is nothing to watch before the first wave.
    if *from != settings.source && was.as_ref() != Some(&is) {
        let nodes: Vec<_> = settings.of_wave(from).collect();
        if nodes.is_empty() {
            return Err(Error::NoNodes(from.clone()).into());
        }
        let asker = Asker::new(settings.cacert.as_deref())?;
        let expected = Expected { commit: Some(&is), max_error_percent: settings.max_error_percent };
        let begun = Instant::now();
        let mut first: Option<Vec<Report>> = None;
        loop {
            let at = begun.elapsed();
            let now = node::ask_all(&asker, &nodes);
            for (index, report) in now.iter().enumerate() {
                // Errors from before the watch don't count.
                let before = first.as_ref().map_or(report, |first| &first[index]);
                if let Some(why) = health::problems(Some(before), report, &expected).into_iter().next() {
                    let (wave, from, node) = (wave.clone(), from.clone(), report.node.clone());
                    return Err(Error::Unhealthy { wave, from, node, why }.into());
                }
            }
            first.get_or_insert(now);
            not_halted()?;
            if at >= watch.well_for {
                well_for = at;
                break;
            }
            let left = watch.well_for.saturating_sub(begun.elapsed());
            said(left);
            thread::sleep(watch.every.min(left));
        }
        if repository.expect(from)? != is {
            return Err(Error::Moved { from: from.clone() }.into());
        }
    }
    repository.advance(wave, &is, was.as_deref())?;
    Ok(Promoted { wave: wave.clone(), was, is, well_for_seconds: well_for.as_secs() })
}
