//! Bounds, which errors name too.

/// The longest route, in bytes.
pub(crate) const MAX_BYTES: usize = 4096;

/// The most segments of a route: matching calls itself once a segment at most.
pub(crate) const MAX_SEGMENTS: usize = 128;

/// The most parameters of a route. Captures are kept in place, so that matching never allocates.
pub const MAX_PARAMS: usize = 16;

/// The longest path that is matched, in bytes; a longer one matches nothing. The http crate's `Uri`
/// holds no longer one either.
pub const MAX_PATH: usize = u16::MAX as usize;

/// The most nodes that any path may visit; a tree that could take more is refused when it is built.
pub const MAX_TRIES: u32 = 4096;
