//! What the server must survive: crashes, a full disk, many clients, restarts, and another server on its port. Runs the
//! real binary.

mod coherence;
mod crash;
mod crowd;
mod disk;
mod drain;
#[path = "../http/mod.rs"]
mod http;
mod migration;
mod permissions;
mod retention;
mod rival;
// This is shared with the tests for TLS, which use more of it.
#[allow(dead_code)]
mod server;
mod unix;
