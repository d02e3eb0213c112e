//! What is left of a key's rate, for the answer's fields.

use std::num::NonZero;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use service::rate_limit::{Exceeded, Left, Rate};

/// How many keys or addresses are remembered. A forgotten one has all its tokens.
pub const REMEMBERED: usize = 100_000;

/// A rate of `per_second` requests in the long run and `burst` at once. Zero counts as one.
pub fn rate(per_second: u32, burst: u32) -> Rate {
    let least = |number| NonZero::new(number).unwrap_or(NonZero::<u32>::MIN);
    Rate::per_second(least(per_second), least(burst))
}

/// What a key has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    rate: Rate,
    /// Requests that are possible now.
    requests: u64,
    /// How long until all are possible.
    full: Duration,
}

impl Remaining {
    /// After a request.
    pub fn after(rate: Rate, left: Left) -> Self {
        Self { rate, requests: left.tokens, full: left.full }
    }

    /// After one request too many.
    pub fn exceeded(rate: Rate, exceeded: Exceeded) -> Self {
        Self { rate, requests: 0, full: exceeded.full }
    }

    /// Adds it to an answer's fields (draft-ietf-httpapi-ratelimit-headers-10).
    pub fn tell(&self, fields: &mut HeaderMap) {
        let policy = format!("\"key\";q={};w={}", self.rate.burst(), seconds(self.rate.window()));
        let limit = format!("\"key\";r={};t={}", self.requests, seconds(self.full));
        for (name, value) in [("ratelimit-policy", policy), ("ratelimit", limit)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                fields.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use service::rate_limit::RateLimiter;

    use super::*;

    #[test]
    fn what_is_left_is_told() {
        let now = Instant::now();
        for (per_second, burst, taken, policy, limit) in [
            (10, 25, 1, "\"key\";q=25;w=3", "\"key\";r=24;t=1"),
            (100, 100, 100, "\"key\";q=100;w=1", "\"key\";r=0;t=1"),
            (1, 3, 4, "\"key\";q=3;w=3", "\"key\";r=0;t=3"),
            (0, 0, 1, "\"key\";q=1;w=1", "\"key\";r=0;t=1"),
        ] {
            let (limiter, rate) = (RateLimiter::new(1), rate(per_second, burst));
            let mut fields = HeaderMap::new();
            for _ in 0..taken {
                let remaining = match limiter.take(1, rate, now) {
                    Ok(left) => Remaining::after(rate, left),
                    Err(exceeded) => Remaining::exceeded(rate, exceeded),
                };
                remaining.tell(&mut fields);
            }
            assert_eq!(fields["ratelimit-policy"], policy);
            assert_eq!(fields["ratelimit"], limit);
        }
    }
}
