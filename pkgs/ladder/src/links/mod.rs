//! A URL shortener, in four stages.
//!
//! The article went from 10,000 to 232,000 requests/s with actix-web and `wrk -t4 -c100 -d60s`, requesting the same
//! code over and over. `GET /{code}` answers with a redirect, an unknown code with 404.

pub mod database;

pub mod s1_naive;
pub mod s2_pragmas;
pub mod s3_brotli;
pub mod s4_moka;

use crate::stage::Stage;

/// All of them, in order.
pub const STAGES: [Stage; 4] = [s1_naive::STAGE, s2_pragmas::STAGE, s3_brotli::STAGE, s4_moka::STAGE];
