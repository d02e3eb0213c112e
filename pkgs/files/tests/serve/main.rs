//! The real `linerate-files serve`, over real sockets.
#![forbid(unsafe_code)]

mod client;
mod disk_faults;
mod limits;
mod listing;
mod operation;
mod place;
mod ranges;
mod secure;
mod semantics;
mod smuggling;
#[path = "../../../listener/tests/interop/tools.rs"]
mod tools;
mod traversal;
