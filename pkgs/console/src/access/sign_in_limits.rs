//! Limits the rate of failed attempts to sign in.

use std::net::IpAddr;
use std::num::NonZero;
use std::time::{Duration, Instant};

use service::rate_limit::{Exceeded, Rate, RateLimiter};
use service::socket::network;

/// Failures per minute from one address.
const PER_ADDRESS: NonZero<u32> = NonZero::new(10).unwrap();

/// Failures per minute for all addresses together. An attacker with many addresses gets no more attempts.
const OVERALL: NonZero<u32> = NonZero::new(100).unwrap();

const MINUTE: Duration = Duration::from_secs(60);

/// How many addresses are remembered. The overall limit allows fewer failures than this until the failures of an
/// address are forgotten.
const REMEMBERED: usize = 4_096;

/// Recent failures.
#[derive(Debug)]
pub(crate) struct SignInLimits(RateLimiter);

/// What failures are counted for.
#[derive(Hash)]
enum Of {
    /// An address. Connections over a Unix socket have none and share one entry.
    Address(Option<IpAddr>),
    Everybody,
}

impl Default for SignInLimits {
    fn default() -> Self {
        Self(RateLimiter::new(REMEMBERED))
    }
}

impl SignInLimits {
    /// Takes an attempt before the key is checked, so that parallel requests get no extra attempts. A successful
    /// attempt is given back. If no attempt is left, the error says when there will be one.
    pub(crate) fn take(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Exceeded> {
        let address = address.map(network);
        self.0.take(Of::Address(address), Rate::per(MINUTE, PER_ADDRESS), now)?;
        self.0.take(Of::Everybody, Rate::per(MINUTE, OVERALL), now).map(drop).inspect_err(|_| {
            self.0.give_back(Of::Address(address), Rate::per(MINUTE, PER_ADDRESS));
        })
    }

    /// Gives back an attempt that wasn't a guess.
    pub(crate) fn give_back(&self, address: Option<IpAddr>) {
        self.0.give_back(Of::Address(address.map(network)), Rate::per(MINUTE, PER_ADDRESS));
        self.0.give_back(Of::Everybody, Rate::per(MINUTE, OVERALL));
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
        let (tries, now) = (SignInLimits::default(), Instant::now());
        let (each, all) = (PER_ADDRESS.get(), OVERALL.get());
        let wait = |address, now| tries.take(address, now).map_err(|exceeded| exceeded.retry);
        for _ in 0..each {
            assert_eq!(wait(address(1), now), Ok(()));
        }
        assert_eq!(wait(address(1), now), Err(MINUTE / each));
        for number in 0..all - each {
            assert_eq!(wait(address(2 + (number / each) as u8), now), Ok(()));
        }
        for _ in 0..2 * each {
            assert_eq!(wait(address(99), now), Err(MINUTE / all), "everybody's are used up");
        }
        assert_eq!(wait(address(99), now + MINUTE / all), Ok(()), "what was refused did not count");
        assert_eq!(wait(address(1), now + MINUTE), Ok(()));
    }

    #[test]
    fn who_signs_in_has_not_failed() {
        let (tries, now) = (SignInLimits::default(), Instant::now());
        for _ in 0..10 * PER_ADDRESS.get() {
            assert!(tries.take(address(1), now).is_ok());
            tries.give_back(address(1));
        }
    }
}
