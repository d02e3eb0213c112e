//! Writes below the root that files are served from. This is a separate program that runs as the root's owner, and only
//! the console's user may ask it, over a Unix socket. The server that everybody can reach stays read-only.
//!
//! ```text
//!  console ─▶ serve ─┬▶ tus: uploads that go on where they broke off ─▶ uploads ─▶ record ─┐
//!                    └▶ rename, delete, make a directory ──────────────▶ path ─────────────┴▶ tree ─▶ root
//! ```
//!
//! An upload is first written to a hidden directory on the same file system that nobody else may read. Once complete
//! and checked, it is renamed into place, so readers never see a part of it. Acknowledged data survives the process and
//! a power cut, since it is on the disk by then.
//!
//! - `path`: paths that may be named.
//! - `tree`: the root; only the kernel looks names up, without following symbolic links.
//! - `record`: what is stored about an upload. `uploads`: all uploads, their limits and their end.
//! - `tus`: the protocol's header fields.
//! - [`serve`]: who may ask, and the answers.

mod path;
mod record;
pub mod serve;
mod tree;
mod tus;
mod uploads;

pub use uploads::Limits;
