//! The console: one web page for the box.
//!
//! ```text
//!  browser ─▶ listener ─▶ guard ─▶ routes ─▶ pages ─┬▶ upstream ─▶ admin listeners of links, files and api
//!                         session, csrf    (HTML)   ├▶ overview: read each second while somebody looks
//!                                                   ├▶ audit: the logs that services write
//!                                                   └▶ machine ─▶ the operator's command line
//! ```
//!
//! It keeps nothing: what it shows it asks of the services, by the APIs of their admin listeners, and of the machine, by
//! [`Machine`], which the operator's command line implements with the code that it prints from.
//!
//! - [`serve`]: the listeners, from start to drain.
//! - [`machine`]: what the machine tells.
//! - `routes`: where pages are; `app`: what they share; `guard`: what stands before all of them; `visitor`: who asks.
//! - `session`, `keys`, `csrf`, `sign_in_limits`: who is signed in and by what, whose form it is, and how often one may try.
//! - `single_sign_on`: who signs in at an issuer instead, and by what cookie they are known when they come back.
//! - `upstream`, `links`, `users`, `files`, `service_keys`, `metrics`: the services, as a client sees them. `audit`: what they write down.
//! - `overview`: what they do, second by second. `live`: how many look at that. `answer_cache`: what was asked a moment ago.
//! - [`flame`]: flame graphs of what processes do.
//! - `profiles`: what was seen of processes, kept for a while.
//! - `imports`: links that come from files, piece by piece.
//! - `pages`: what is shown. `assets`: what pages are made of that is the same for all.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod answer_cache;
mod app;
mod assets;
pub mod flame;
mod guard;
mod imports;
mod keys;
mod live;
pub mod machine;
mod overview;
mod pages;
mod routes;
pub mod serve;
mod service_keys;
mod services;
mod visitor;

use access::{csrf, session, sign_in_limits, single_sign_on};
use flame::profiles;
pub use services::metrics;
use services::{audit, fields, files, links, sent_file, upstream, users};

pub use machine::Machine;
pub use serve::{Args, Error, HelperAt, run};
pub use single_sign_on::{ClientSecret, OidcArgs};
