//! A read-through cache on disk for objects of S3.
//!
//! ```text
//!  who serves ─▶ origin ─▶ catalogue: known, fresh? ─▶ object ─▶ blocks: is it there? ─▶ a plain file, sent as any other
//!                  │              ▲                                  │ not yet
//!                  │ lookup       │ metadata                         ▼ fetch, one flight a block
//!                  └────────────▶ remote (credentials) ─▶ S3 ─▶ disk: written, made to last, then said to be there
//!                                                               queue: what goes when the disk is full
//! ```
//!
//! An object is fetched in blocks of 1 MiB, each with `If-Match`, into a sparse file that is named by key and ETag. What is
//! whole is a plain file, which whoever serves files sends as any other. What is not is sent block by block as they come.
//!
//! - [`settings`]: where the objects are, and every bound.
//! - [`remote`], [`credentials`]: requests to S3, and what they are signed with.
//! - [`metadata`]: what is known of an object without its bytes.
//! - [`disk`]: the cache directory: names, files, and what is found there at start.
//! - [`blocks`]: which blocks of a file are there.
//! - [`queue`]: what is evicted first (S3-FIFO).
//! - [`catalogue`]: which objects there are, how fresh they are, and how many bytes they take.
//! - [`object`]: one version of an object in use.
//! - [`origin`]: lookups and fetches, one at a time for each key and block.
//! - [`metrics`]: what operators see.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod catalogue;
pub mod credentials;
pub mod disk;
pub mod error;
pub mod metadata;
pub mod metrics;
pub mod object;
pub mod origin;
pub mod queue;
pub mod remote;
pub mod settings;

pub use crate::error::Error;
pub use crate::object::{Fetched, Object};
pub use crate::origin::{Known, Origin};
pub use crate::settings::{Bucket, Settings, StartError};

/// What is fetched and stored at once, in bytes: large enough that requests cost little beside it, small enough that the
/// first byte of a cold file does not wait long.
pub const BLOCK_BYTES: u64 = 1 << 20;
