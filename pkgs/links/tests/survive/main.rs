//! What the server must survive: crashes, a full disk, crowds, restarts and rivals. Runs the real binary.

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
// Shared with the tests for TLS, which need more of it.
#[allow(dead_code)]
mod server;
mod unix;
