//! A compile-once table of routes: a method and a path find a route's value and its parameters.
//!
//! ```text
//!  Builder: method, pattern, value ─▶ pattern: parsed, conflicts refused ─▶ build ─▶ Router: one frozen tree
//!  request: method, path ─▶ Router::find ─▶ tree: segment by segment ─▶ methods ─▶ Match: value, parameters (ranges)
//!                                                                              └▶ no such path, or no such method
//! ```
//!
//! [`Builder`] takes routes, each a method, a pattern and a value of the service's own; [`Builder::build`] freezes them
//! into a [`Router`], which one match asks for all there is to know of a request: [`Router::find`]. What a service
//! does with the value (call a handler, count, check a scope) is the service's affair; there is no transport, no body
//! and no future in here.
//!
//! The API routes everything that it serves by it (`api::http::routes`), links every visit (`links::front`) and the pages
//! of its admin listener (`links::admin::pages`), and `service::admin` those of the others' admin listeners.
//!
//! # Which route matches
//!
//! A path is the segments between its `/`, and so is a pattern. A path's segments are looked at from left
//! to right; where several patterns go on, a static segment is tried first, then parameters (`{id}`), then a
//! catch-all (`{*rest}`); of two parameters the one with more literal bytes around it (`{name}.json`), and of those
//! the one with the longer prefix. When what was tried leads to no route for the whole path, the next is tried.
//! Parameters match no empty text, and a parameter never matches a `/`, nor does `%2F` count as one.
//!
//! Literals are compared as RFC 3986, section 6.2.2 normalises them: `/%7Euser` is `/~user`, `%2f` is
//! `%2F`. Parameters are ranges of the path as it came, and decoded when they are asked for. `.` and `..`
//! are segments like others.
//!
//! The path decides before the method does: a path that matches one pattern is never given to another for the sake of
//! its method. HEAD is GET's (RFC 9110, section 9.3.2) unless the pattern has a route for it.
#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod error;
mod escape;
mod limits;
mod methods;
mod names;
mod pattern;
mod router;
mod tree;

pub use error::{BuildError, SyntaxError};
pub use escape::NotUtf8;
pub use limits::{MAX_PARAMS, MAX_PATH, MAX_TRIES};
pub use router::{Builder, Lookup, Match, Router};
