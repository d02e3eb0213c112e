//! Users: the resource.
//!
//! - [`UserId`]: its name.
//! - [`Document`]: what a client sends.
//! - [`Record`]: what is stored, and sent as it is.

mod document;
mod id;
mod record;

pub use document::{Address, Document, Preferences, Profile, Status};
pub use id::{InvalidId, UserId};
pub use record::Record;
