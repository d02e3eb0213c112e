//! Writes below the root that files are served from. This is a separate program that runs as the root's owner. Only the
//! console's user may connect to its Unix socket. The public server stays read-only.
//!
//! ```text
//!  console ─▶ serve ─┬▶ tus: uploads that go on where they broke off ─▶ uploads ─▶ record ─┐
//!                    └▶ rename, delete, make a directory ──────────────▶ path ─────────────┴▶ tree ─▶ root
//! ```
//!
//! An upload is first written to a hidden directory on the same file system, which only the writer may read. Once it is
//! complete and checked, it is renamed into place, so readers never see a partial file. Acknowledged data is on the
//! disk, so it survives a crash of the process and a power cut.
//!
//! - `path`: checks the paths in requests.
//! - `tree`: the root. Only the kernel resolves names, and it follows no symbolic links.
//! - `record`: what is stored about an upload. `uploads`: all uploads, their limits and their expiry.
//! - `tus`: the protocol's header fields.
//! - [`serve`]: who may ask, and the answers.

mod path;
mod record;
pub mod serve;
mod tree;
mod tus;
mod uploads;

pub use uploads::Limits;
