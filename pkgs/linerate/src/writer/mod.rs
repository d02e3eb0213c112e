//! What writes below the root that files are served from: a program of its own, as the user whom the root belongs to, asked
//! on a Unix socket by the console's user alone. The server that everybody reaches stays read-only.
//!
//! ```text
//!  console ─▶ serve ─┬▶ tus: uploads that go on where they broke off ─▶ uploads ─▶ record ─┐
//!                    └▶ rename, delete, make a directory ──────────────▶ path ─────────────┴▶ tree ─▶ root
//! ```
//!
//! An upload is written aside, in a hidden directory of the same file system that nobody else may read. Whole and checked
//! it is renamed into place, so that no reader ever sees a part of it. What was acknowledged outlives the process, and the
//! machine's power too: it is on the disk by then.
//!
//! - `path`: what may be named.
//! - `tree`: the root; names are looked up by the kernel alone, without a symbolic link on the way.
//! - `record`: what is kept of an upload. `uploads`: all of them, their room and their end.
//! - `tus`: the protocol's header fields.
//! - [`serve`]: who asks, and what is answered.

mod path;
mod record;
pub mod serve;
mod tree;
mod tus;
mod uploads;

pub use uploads::Limits;
