//! The store, whole.
