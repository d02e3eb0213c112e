//! The admin listener.
