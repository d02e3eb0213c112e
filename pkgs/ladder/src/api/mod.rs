//! A JSON API, in eight stages.
//!
//! The article went from 620 to 52,000 requests/s on a c6i.4xlarge with `wrk -t16 -c500 -d30s`. It shows fragments of
//! code but no workload; here there are two:
//!
//! - `POST /users` takes a document of 2 KB, changes its address and tags to lower case, and returns it with a few
//!   fields derived from it. It isn't stored: this is about JSON.
//! - `GET /users/{id}` returns a row from PostgreSQL with such a document.
//!
//! Every stage answers every request with the same JSON and the same errors, which the tests check.
// More than a dozen files: one for each stage, numbered in their order, and what all of them share.

pub mod answer;
pub mod borrowed;
pub mod database;
mod document;
pub mod user;

pub mod s1_default;
pub mod s2_sonic;
pub mod s3_pool;
pub mod s4_allocations;
pub mod s5_runtime;
pub mod s6_shared;
pub mod s7_kernel;
pub mod s8_build;

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;

use crate::Error;
use crate::stage::Stage;

/// All of them, in order.
pub const STAGES: [Stage; 8] = [
    s1_default::STAGE,
    s2_sonic::STAGE,
    s3_pool::STAGE,
    s4_allocations::STAGE,
    s5_runtime::STAGE,
    s6_shared::STAGE,
    s7_kernel::STAGE,
    s8_build::STAGE,
];

/// Serves as axum's documentation shows.
async fn serve(listen: SocketAddr, router: Router) -> Result<(), Error> {
    let listener = TcpListener::bind(listen).await.map_err(Error::serve(listen))?;
    axum::serve(listener, router).await.map_err(Error::serve(listen))
}
