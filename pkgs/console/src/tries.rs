//! How often one may try to sign in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use service::socket::network;

/// Failures of one address within [`WINDOW`].
const PER_ADDRESS: u32 = 10;

/// Failures of everybody within it: whoever has many addresses has no more tries for that.
const OVERALL: u32 = 100;

const WINDOW: Duration = Duration::from_secs(60);

/// Failures of late, by address; those on a Unix socket have none, and share a place.
#[derive(Debug, Default)]
pub(crate) struct Tries(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    failures: HashMap<Option<IpAddr>, u32>,
    overall: u32,
}

impl Tries {
    /// Takes a try, to be given back where it succeeds: whoever tries many at once has as few. Tells whether there was one,
    /// and where there was none, how long until there is.
    pub(crate) fn take(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = window.begun.map_or(WINDOW, |begun| now.saturating_duration_since(begun));
        if age >= WINDOW {
            *window = Window { begun: Some(now), ..Window::default() };
        }
        let Window { begun, failures, overall } = &mut *window;
        let left = begun.map_or(Duration::ZERO, |begun| (begun + WINDOW).saturating_duration_since(now));
        let failed = failures.get(&address.map(network)).copied().unwrap_or(0);
        if *overall >= OVERALL || failed >= PER_ADDRESS {
            return Err(left);
        }
        // Bounded, since there are no more addresses than failures.
        failures.insert(address.map(network), failed + 1);
        *overall += 1;
        Ok(())
    }

    /// Gives a try back that was none at guessing.
    pub(crate) fn give_back(&self, address: Option<IpAddr>) {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = window.failures.get_mut(&address.map(network)) {
            *failed = failed.saturating_sub(1);
            window.overall = window.overall.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn an_address_has_its_tries_and_everybody_together_theirs() {
        let (tries, now) = (Tries::default(), Instant::now());
        for _ in 0..PER_ADDRESS {
            assert_eq!(tries.take(address(1), now), Ok(()));
        }
        assert_eq!(tries.take(address(1), now), Err(WINDOW));
        for number in 0..OVERALL - PER_ADDRESS {
            assert_eq!(tries.take(address(2 + (number / PER_ADDRESS) as u8), now), Ok(()));
        }
        assert_eq!(tries.take(address(99), now), Err(WINDOW), "everybody's are used up");
        assert_eq!(tries.take(address(1), now + WINDOW), Ok(()));
    }

    #[test]
    fn who_signs_in_has_not_failed() {
        let (tries, now) = (Tries::default(), Instant::now());
        for _ in 0..10 * PER_ADDRESS {
            assert_eq!(tries.take(address(1), now), Ok(()));
            tries.give_back(address(1));
        }
    }
}
