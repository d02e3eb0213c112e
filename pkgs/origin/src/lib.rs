//! A read-through cache on disk for objects in S3.
//!
//! ```text
//!  who serves ─▶ origin ─▶ catalogue: known, fresh? ─▶ object ─▶ blocks: is it there? ─▶ a plain file, sent as any other
//!                  │              ▲                                  │ not yet
//!                  │ lookup       │ metadata                         ▼ fetch, one flight a block
//!                  └────────────▶ remote (credentials) ─▶ S3 ─▶ disk: written, made to last, then said to be there
//!                                                               queue: what goes when the disk is full
//! ```
//!
//! Objects are fetched in blocks of 1 MiB, each with `If-Match`, into a sparse file named by key and ETag. A complete
//! object is a plain file that can be sent like any other. An incomplete one is sent block by block as they arrive.
//!
//! - [`settings`]: where the objects are, and all limits.
//! - [`remote`], [`credentials`]: requests to S3, and their signatures.
//! - [`metadata`]: what is known about an object without its bytes.
//! - [`disk`]: the cache directory: names, files, and what is found there at the start.
//! - [`blocks`]: which blocks of a file are there.
//! - [`queue`]: what is evicted first (S3-FIFO).
//! - [`catalogue`]: all objects, how fresh they are, and how many bytes they take.
//! - [`object`]: one version of an object in use.
//! - [`origin`]: look-ups and fetches, one at a time per key and block.
//! - [`metrics`]: metrics for operators.
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

/// How much is fetched and stored at once, in bytes. It is large enough to make the cost of a request small, and small
/// enough that the first byte of a cold file arrives soon.
pub const BLOCK_BYTES: u64 = 1 << 20;
