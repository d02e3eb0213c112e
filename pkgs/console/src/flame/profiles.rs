//! Recorded profiles, in memory: the newest ones, within limits on their number and size.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::flame::Unit;
use crate::machine::{Watch, Watched};

/// How many profiles are kept, and how many bytes of stacks in total. The oldest profiles are dropped first.
const KEPT: usize = 16;
const KEPT_BYTES: usize = 16 << 20;

/// A profile.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Its number, which is unique.
    pub(crate) number: u64,
    /// What was requested.
    pub(crate) watch: Watch,
    /// The time of the request, in seconds since 1970.
    pub(crate) at: u64,
    /// The result; none while recording.
    pub(crate) seen: Option<Result<Watched, String>>,
}

impl Profile {
    /// The service, or the whole machine, as text.
    pub(crate) fn what(&self) -> &str {
        self.watch.service.as_deref().unwrap_or("the whole machine")
    }

    /// The unit of its weights.
    pub(crate) fn unit(&self) -> Unit {
        if self.watch.waiting { Unit::Micros } else { Unit::Samples }
    }

    fn bytes(&self) -> usize {
        self.seen.as_ref().and_then(|seen| seen.as_ref().ok()).map_or(0, |seen| seen.folded.len())
    }
}

/// The profiles that are kept.
#[derive(Debug, Default)]
pub(crate) struct Profiles(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    /// Newest first.
    all: VecDeque<Arc<Profile>>,
}

impl Profiles {
    /// Begins a profile; none if another one is being recorded.
    pub(crate) fn begin(&self, watch: Watch, at: u64) -> Option<u64> {
        let mut kept = self.lock();
        if kept.all.iter().any(|profile| profile.seen.is_none()) {
            return None;
        }
        kept.last += 1;
        let number = kept.last;
        kept.all.push_front(Arc::new(Profile { number, watch, at, seen: None }));
        kept.all.truncate(KEPT);
        Some(number)
    }

    /// Ends a profile.
    pub(crate) fn end(&self, number: u64, seen: Result<Watched, String>) {
        let mut kept = self.lock();
        if let Some(one) = kept.all.iter_mut().find(|profile| profile.number == number) {
            let Profile { watch, at, .. } = &**one;
            *one = Arc::new(Profile { number, watch: watch.clone(), at: *at, seen: Some(seen) });
        }
        let bytes = |kept: &Kept| kept.all.iter().map(|profile| profile.bytes()).sum::<usize>();
        while bytes(&kept) > KEPT_BYTES && kept.all.len() > 1 {
            kept.all.pop_back();
        }
    }

    /// All profiles, newest first.
    pub(crate) fn all(&self) -> Vec<Arc<Profile>> {
        self.lock().all.iter().cloned().collect()
    }

    /// A profile by its number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Profile>> {
        self.lock().all.iter().find(|profile| profile.number == number).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch { service: None, seconds: 1, waiting: false }
    }

    fn seen(bytes: usize) -> Result<Watched, String> {
        Ok(Watched { folded: "a".repeat(bytes), event: String::new(), kernel: true, lost: 0 })
    }

    #[test]
    fn one_is_under_way_at_a_time_and_the_newest_are_kept() {
        let profiles = Profiles::default();
        assert_eq!(profiles.begin(watch(), 0), Some(1));
        assert_eq!(profiles.begin(watch(), 0), None);
        profiles.end(1, Err("denied".into()));
        for number in 2..40 {
            assert_eq!(profiles.begin(watch(), 0), Some(number));
            profiles.end(number, seen(10));
        }
        let numbers: Vec<u64> = profiles.all().iter().map(|profile| profile.number).collect();
        assert_eq!(numbers, (40 - KEPT as u64..40).rev().collect::<Vec<_>>());
        assert!(profiles.get(1).is_none() && profiles.get(39).is_some());
    }

    #[test]
    fn the_oldest_make_room_for_large_ones_and_the_newest_stays() {
        let profiles = Profiles::default();
        for (number, bytes) in [(1, 10), (2, KEPT_BYTES / 2), (3, KEPT_BYTES / 2), (4, KEPT_BYTES + 1)] {
            profiles.begin(watch(), 0);
            profiles.end(number, seen(bytes));
            let kept: Vec<u64> = profiles.all().iter().map(|profile| profile.number).collect();
            let expected: &[u64] = match number {
                1 => &[1],
                2 => &[2, 1],
                3 => &[3, 2],
                _ => &[4],
            };
            assert_eq!(kept, expected);
        }
    }
}
