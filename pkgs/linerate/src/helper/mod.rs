//! Performs what the console itself may not do: place queues, and record what processes do. It is a small program with
//! the necessary privileges. Only the console's user may connect to its Unix socket, and it performs only a few fixed
//! actions.
//!
//! - `request`: the requests, which are its whole interface.
//! - `work`: does them, by running this program with a command line that is fixed except for checked names, and never
//!   with a shell.
//! - [`serve`]: who may ask, how long that may take, and how many may ask at once.
//! - `ask`: the client.

mod ask;
mod request;
pub mod serve;
mod work;

pub use ask::ask;
pub use request::{Request, RequestError, Verb};
pub use work::{Answer, Worker};

/// The longest request, in bytes.
pub const MOST_REQUEST: u64 = 4096;

/// The longest answer, in bytes. Folded stacks take at most four megabytes, and somewhat more as JSON.
pub const MOST_ANSWER: u64 = 16 << 20;
