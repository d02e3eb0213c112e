//! Two articles' optimisation stages, one small server each.
//!
//! - [`api`]: a JSON API on PostgreSQL, in eight stages from 620 to 52,000 requests/s.
//! - [`links`]: a URL shortener on SQLite, in four stages from 10,000 to 232,000 requests/s.
//! - [`stage`]: the description of a stage.
//! - [`verdict`]: whether it helps, judged by measurements.
//! - [`cli`]: serves one.
//!
//! A stage is a file with its own change. It takes everything else from the previous stages, so reading them in order
//! is like reading the article. They are there to be measured, not to be used: `linerate-api` and `linerate-links` are
//! the products.
#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod links;
pub mod stage;
pub mod verdict;

mod error;

pub use error::Error;
