//! A compile-once route tree with middleware, for any transport.
//!
//! [`Builder`] takes routes, [handlers](Handler) and [middlewares](Builder::before); [`Builder::build`]
//! freezes them into a [`Router`], which is one `Arc` and a `tower` service. [`matcher`] is the tree alone.
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod answer;
mod builder;
mod error;
mod escape;
pub mod extract;
mod handler;
mod hosts;
mod kind;
mod matched;
pub mod matcher;
mod methods;
pub mod middleware;
mod names;
mod pattern;
mod response;
mod router;
mod tree;

pub use answer::Answer;
pub use builder::Builder;
pub use error::{BuildError, SyntaxError};
pub use escape::NotUtf8;
pub use handler::Handler;
pub use matched::Matched;
pub use middleware::Next;
pub use response::IntoResponse;
pub use router::{Router, RouterFuture, TrailingSlash};
pub use tree::{Captures, MAX_PARAMS, MAX_PATH, MAX_TRIES};
