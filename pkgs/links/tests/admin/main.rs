//! The admin listener, over real sockets.

mod bulk;
mod crowd;
mod domains;
mod health;
mod keys;
mod links_api;
mod openapi;
mod server;
mod stats;
mod wire;
