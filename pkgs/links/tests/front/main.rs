//! The public listener's answers, byte by byte, over real sockets.

mod domains;
#[path = "../http/mod.rs"]
mod http;
mod limits;
mod passwords;
mod protocol;
mod redirects;
mod server;
mod well_known;
