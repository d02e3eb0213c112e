//! The listener as other implementations see it: `examples/interop.rs` in a separate process, with clients of all
//! kinds, polite and not.
//!
//! They need Python and Go, which fetch what they need once (`tools`), and the server, which `cargo test` builds unless
//! it is told to build only this test.

mod change;
mod client;
mod crowd;
mod curl;
mod flood;
mod h2spec;
mod h3;
mod load;
mod names;
mod noise;
mod panic;
mod ports;
mod raw;
mod server;
mod slow;
mod spec;
mod tools;
mod unread;
