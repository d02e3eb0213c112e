//! The real `linerate-files serve`, over real sockets.
#![forbid(unsafe_code)]

mod archive;
mod auth;
mod browse;
mod cold;
mod compress;
mod crowd;
mod disk_faults;
mod hints;
mod hot;
mod limits;
mod listing;
// A part of the soak bench, whose own binary has no tests.
#[allow(dead_code)]
#[path = "../../benches/soak/measure.rs"]
mod measure;
mod operation;
mod place;
mod proxies;
mod ranges;
mod routes;
mod secure;
mod semantics;
mod sites;
mod smuggling;
mod soak;
mod times;
mod timing;
// Shared with the listener's tests, which need more of it.
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/tools.rs"]
mod tools;
mod traversal;
mod versions;

use testkit::client;
