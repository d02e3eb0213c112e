//! The console: one web page for the box.
//!
//! ```text
//!  browser ─▶ listener ─▶ guard ─▶ routes ─▶ pages ─┬▶ upstream ─▶ admin listeners of links, files and api
//!                         session, csrf    (HTML)   ├▶ overview: read each second while somebody looks
//!                                                   ├▶ audit: the logs that services write
//!                                                   └▶ machine ─▶ the operator's command line
//! ```
//!
//! It stores nothing itself. It shows data from the services, through the APIs on their admin listeners, and from the
//! machine, through [`Machine`]. The operator's command line implements that trait with the same code as its own
//! commands.
//!
//! - [`serve`]: the listeners, from start to drain.
//! - [`machine`]: the interface to the machine.
//! - `routes`: the paths of pages; `app`: the state that pages share; `guard`: the checks before every page; `visitor`:
//!   who sends a request.
//! - `session`, `keys`, `csrf`, `sign_in_limits`: who is signed in and with which keys, whether a form is theirs, and
//!   how often somebody may try to sign in.
//! - `single_sign_on`: signing in at an issuer instead, and the cookie that recognises people when they come back from
//!   there.
//! - `upstream`, `links`, `users`, `files`, `service_keys`, `metrics`: clients for the services. `audit`: the services'
//!   audit logs.
//! - `overview`: what the services do, second by second. `live`: limits how many pages watch that. `answer_cache`:
//!   recent answers.
//! - [`flame`]: flame graphs of what processes do.
//! - `profiles`: recorded profiles, kept for a while.
//! - `imports`: importing links from files, piece by piece.
//! - `pages`: the pages. `assets`: files that all pages share.
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
