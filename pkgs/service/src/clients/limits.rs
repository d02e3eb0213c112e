//! Flags that limit what clients may take and how long. They are the same for every service, and described only here.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use crate::address_limits::AddressLimits;
use crate::rate_limit::Rate;
use crate::socket::TcpOptions;

/// Limits of connections.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ConnectionArgs {
    /// Connections of all workers of a listener together; further ones are closed at once.
    #[arg(long, value_name = "N", default_value_t = 16_384, help_heading = "Resources",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_connections: usize,

    /// Connections of one address to all listeners; further ones are closed at once. Those of a trusted proxy do
    /// not count. Default: no limit.
    #[arg(long, value_name = "N", help_heading = "Limits of one address")]
    pub address_connections: Option<NonZero<u32>>,
}

impl ConnectionArgs {
    /// The most connections of one address; 0 for no limit.
    #[must_use]
    pub fn per_address(&self) -> u32 {
        self.address_connections.map_or(0, NonZero::get)
    }
}

/// The limit of waiting connections.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct BacklogArgs {
    /// Connections that may wait to be accepted; net.core.somaxconn caps it.
    #[arg(long, value_name = "N", default_value_t = TcpOptions::default().backlog, help_heading = "Resources",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub backlog: i32,
}

/// The rate limit of one address.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct AddressRateArgs {
    /// Requests a second of one address to all listeners; further ones are answered 429. Default: no limit.
    #[arg(long, value_name = "N", help_heading = "Limits of one address")]
    pub address_rate: Option<NonZero<u32>>,

    /// Requests one address may have at once before its rate counts.
    #[arg(long, value_name = "N", default_value = "100", help_heading = "Limits of one address")]
    pub address_burst: NonZero<u32>,
}

impl AddressRateArgs {
    /// The limits of one address; none if it is not limited.
    #[must_use]
    pub fn limits(&self, connections: &ConnectionArgs) -> Option<Arc<AddressLimits>> {
        let rate = self.address_rate.map(|rate| Rate::per_second(rate, self.address_burst));
        AddressLimits::new(rate, connections.address_connections)
    }
}

/// The longest time that a setting may be, in seconds: a year. No clock overflows when it is added.
const LONGEST: u64 = 365 * 24 * 60 * 60;

/// The parser of a setting in seconds, at least `least`.
#[must_use]
pub fn seconds(least: u64) -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(least..=LONGEST)
}

/// How long clients may take, and how long they have when the service stops, by default `DRAIN` seconds.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TimeoutArgs<const DRAIN: u64> {
    /// How long a handshake, the first byte after it, and a request's head may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Time",
          value_parser = seconds(1))]
    pub head_timeout: u64,

    /// How long a connection may be idle, in seconds. Set it higher than a proxy in front does: otherwise the service
    /// closes connections that the proxy is about to use.
    #[arg(long, value_name = "SECONDS", default_value_t = 75, help_heading = "Time",
          value_parser = seconds(1))]
    pub idle_timeout: u64,

    /// How long a shutdown waits for requests that are still being answered, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DRAIN, help_heading = "Time",
          value_parser = seconds(0))]
    pub drain_timeout: u64,
}

impl<const DRAIN: u64> TimeoutArgs<DRAIN> {
    /// The timeout of a request's head.
    #[must_use]
    pub fn head(&self) -> Duration {
        Duration::from_secs(self.head_timeout)
    }

    /// The timeout of an idle connection.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_timeout)
    }

    /// How long running requests have at shutdown.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_timeout)
    }
}
