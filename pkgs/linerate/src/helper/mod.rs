//! What the console may not do itself: place queues, and look at what processes do. A small program with the rights for it does,
//! asked on a Unix socket by the console's user alone, in a few fixed words.
//!
//! - `request`: what may be asked for, and nothing else.
//! - `work`: doing it, by a command line of this program that is fixed but for names that were checked; never by a shell.
//! - [`serve`]: who asks, how long that may take, and how many may at once.
//! - `ask`: the other end.

mod ask;
mod request;
pub mod serve;
mod work;

pub use ask::ask;
pub use request::{Request, RequestError, Verb};
pub use work::{Answer, Worker};

/// The longest request, in bytes.
pub const MOST_REQUEST: u64 = 4096;

/// The longest answer, in bytes: folded stacks are four megabytes at most, as JSON somewhat more.
pub const MOST_ANSWER: u64 = 16 << 20;
