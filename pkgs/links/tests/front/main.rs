//! What the public listener answers, byte by byte, through real sockets.

#[path = "../http/mod.rs"]
mod http;
mod limits;
mod passwords;
mod protocol;
mod redirects;
mod server;
mod well_known;
