//! Users: the resource.
//!
//! - [`UserId`]: a user's id.
//! - [`Document`]: what a client sends, and the rules of its members.
//! - [`parse`]: reads bodies as documents, or reports all faults.
//! - [`Record`]: the stored form, which is sent unchanged.

mod day;
mod document;
mod id;
pub mod parse;
mod preferences;
mod record;
mod rules;

pub use day::{Day, InvalidDay};
pub use document::{Address, Document, Profile, Status};
pub use id::{InvalidId, UserId};
pub use parse::Limits;
pub use preferences::{Preferences, Setting};
pub use record::Record;
