//! What each worker counts.
