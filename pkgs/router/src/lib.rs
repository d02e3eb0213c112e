//! A table of routes, compiled once. A method and a path find a route's value and its parameters.
//!
//! ```text
//!  Builder: method, pattern, value ─▶ pattern: parsed, conflicts refused ─▶ build ─▶ Router: one frozen tree
//!  request: method, path ─▶ Router::find ─▶ tree: segment by segment ─▶ methods ─▶ Match: value, parameters (ranges)
//!                                                                              └▶ no such path, or no such method
//! ```
//!
//! [`Builder`] takes routes, each with a method, a pattern and a value of the service's choice. [`Builder::build`]
//! freezes them into a [`Router`], and [`Router::find`] returns everything about a request in one match. The service
//! decides what to do with the value: call a handler, count, check a scope. This crate has no transport, no bodies and
//! no futures.
//!
//! The crate api routes all its requests with this table (`api::http::routes`). The crate links routes every visit
//! (`links::front`) and the pages of its admin listener (`links::admin::pages`). `service::admin` routes the admin
//! pages of the other services.
//!
//! # Which route matches
//!
//! Paths and patterns consist of segments between `/`. A path's segments are matched from left to right. If several
//! patterns match so far, a static segment is tried first, then parameters (`{id}`), then a catch-all (`{*rest}`). Of
//! two parameters, the one with more literal bytes around it (`{name}.json`) is tried first. If they have equally many,
//! the one with the longer prefix is first. If an attempt leads to no route for the whole path, the next one is tried.
//! A parameter never matches an empty text or a `/`, and `%2F` does not count as a `/`.
//!
//! Literals are compared in the normal form of RFC 3986, section 6.2.2: `/%7Euser` is `/~user`, `%2f` is `%2F`.
//! Parameters are ranges of the path as received, and are decoded on request. `.` and `..` are ordinary segments.
//!
//! The path decides before the method: a path that matches one pattern is never passed to another pattern because of
//! its method. GET's route also serves HEAD (RFC 9110, section 9.3.2), unless the pattern has a route for HEAD.
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
