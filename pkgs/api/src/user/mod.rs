//! Users: the resource.
//!
//! - [`UserId`]: its name.
//! - [`Document`]: what a client sends, and what its members have to be like.
//! - [`parse`]: from the bytes of a body to documents, or to all that is wrong with them.
//! - [`Record`]: what is stored, and sent as it is.

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
