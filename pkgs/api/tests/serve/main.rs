//! The real `linerate-api serve`, over real sockets.
#![forbid(unsafe_code)]

#[macro_use]
mod place;

mod access;
mod addresses;
mod batches;
mod databases;
mod described;
mod keys;
mod lists;
mod logs;
mod nesting;
mod operation;
mod outage;
mod proxies;
mod secrets;
mod sums;
// Shared with the listener's tests, which need more of it.
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/tools.rs"]
mod tools;
mod users;
mod writes;

use testkit::client;
