//! A compile-once route tree.
//!
//! # Which route matches
//!
//! A path is the segments between its `/`, and so is a route. A path's segments are looked at from left
//! to right; where several routes go on, a static segment is tried first, then typed parameters
//! (`{id:u64}`), then plain ones (`{id}`), then a catch-all (`{*rest}`); of two parameters of one class the
//! one with more literal bytes around it (`{name}.json`), of those the one with the longer prefix, and of
//! those the one whose type is listed first. When what was tried leads to no route for the whole path, the
//! next is tried. Parameters match no empty text, and a parameter never matches a `/`, nor does `%2F`
//! count as one.
//!
//! Literals are compared as RFC 3986, section 6.2.2 normalises them: `/%7Euser` is `/~user`, `%2f` is
//! `%2F`. Parameters are ranges of the path as it came, and decoded when they are asked for. `.` and `..`
//! are segments like others.
#![deny(unsafe_code)]

mod error;
mod escape;
mod kind;
pub mod matcher;
mod names;
mod pattern;
mod tree;

pub use error::{BuildError, SyntaxError};
pub use escape::NotUtf8;
pub use tree::{Captures, MAX_PARAMS, MAX_PATH, MAX_TRIES};
