//! Two articles' optimisation stages, one small server each.
//!
//! - [`api`]: a JSON API on PostgreSQL, in eight stages from 620 to 52,000 requests/s.
//! - [`links`]: a URL shortener on SQLite, in four stages from 10,000 to 232,000 requests/s.
//! - [`stage`]: what there is to know of a stage.
//! - [`verdict`]: whether it helps, by what was measured.
//! - [`cli`]: serves one.
//!
//! A stage is a file. It has its own change and takes everything else from the stages before, so reading them
//! in order is reading the article. They are there to be measured, not to be used: `linerate-api` and
//! `linerate-links` are the products.
#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod links;
pub mod stage;
pub mod verdict;

mod error;

pub use error::Error;
