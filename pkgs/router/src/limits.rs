//! Limits, which errors also name.

/// The longest route, in bytes.
pub(crate) const MAX_BYTES: usize = 4096;

/// The most segments of a route. Matching recurses at most once per segment.
pub(crate) const MAX_SEGMENTS: usize = 128;

/// The most parameters of a route. Captures are stored in place, so matching never allocates.
pub const MAX_PARAMS: usize = 16;

/// The longest path that is matched, in bytes. A longer path matches nothing. The http crate's `Uri` cannot hold a
/// longer one either.
pub const MAX_PATH: usize = u16::MAX as usize;

/// The most nodes that any path may visit. `build` refuses a tree in which a path could visit more.
pub const MAX_TRIES: u32 = 4096;
