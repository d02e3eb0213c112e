//! Keeps file descriptors free, since an accepted connection needs more of them than its own.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// The lowest descriptor number that is kept free.
///
/// The kernel hands out the lowest free number (open(2)). So a new descriptor's number is a lower bound of how many are
/// open, whatever they are, and nothing has to be counted. By default, none is kept free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWater(u64);

impl Default for HighWater {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl HighWater {
    /// Keeps `spare` of the descriptors free that the process may open (`RLIMIT_NOFILE`). But it keeps free at most
    /// half of those that are left after the open ones and `expected` more.
    pub fn keeping(spare: u64, expected: u64) -> Self {
        let Some(limit) = getrlimit(Resource::Nofile).current else { return Self::default() };
        let open = lowest_free(std::io::stdin()).unwrap_or(limit);
        Self(limit - spare.min(limit.saturating_sub(open.saturating_add(expected)) / 2))
    }

    /// Whether the just opened `new` is one that should be kept free.
    pub fn is_passed_by(self, new: impl AsFd) -> bool {
        number(new) >= self.0
    }

    /// Whether the next descriptor would be one that should be kept free. `any` is any open descriptor.
    pub fn is_reached(self, any: impl AsFd) -> bool {
        self != Self::default() && lowest_free(any).is_none_or(|lowest| lowest >= self.0)
    }
}

/// The number of the next descriptor; none if there is none left.
fn lowest_free(any: impl AsFd) -> Option<u64> {
    fcntl_dupfd_cloexec(any, 0).ok().map(number)
}

fn number(descriptor: impl AsFd) -> u64 {
    // Open descriptors are not negative.
    u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use super::*;

    fn open() -> OwnedFd {
        File::open("/dev/null").expect("a file").into()
    }

    #[test]
    fn the_mark_is_reached_when_as_many_are_open() {
        // Other tests of this process open and close files, so leave a margin.
        let mark = HighWater(lowest_free(open()).expect("one") + 100);
        let first = open();
        assert!(!mark.is_reached(&first) && !mark.is_passed_by(&first));
        let all: Vec<OwnedFd> = (0..200).map(|_| open()).collect();
        assert!(mark.is_reached(&first) && mark.is_passed_by(&all[199]) && !mark.is_passed_by(&first));
        drop(all);
        assert!(!mark.is_reached(&first));
    }

    #[test]
    fn some_are_kept_and_of_few_half() {
        let limit = getrlimit(Resource::Nofile).current.expect("a limit");
        assert_eq!(HighWater::keeping(1, 0), HighWater(limit - 1));
        let HighWater(mark) = HighWater::keeping(u64::MAX, 0);
        let left = limit - mark;
        assert!(left > 0 && left <= limit / 2, "{left} of {limit}");
        assert_eq!(HighWater::keeping(u64::MAX, u64::MAX), HighWater(limit), "none where there are none");
        assert!(!HighWater::default().is_reached(open()) && !HighWater::default().is_passed_by(open()));
    }
}
