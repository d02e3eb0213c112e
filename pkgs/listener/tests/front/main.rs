//! The listener over real sockets: what clients may do, and what happens to those that do more.

mod addresses;
mod fast_http2;
mod fast_mix;
mod fast_path;
mod held;
mod http1;
mod http2;
mod limits;
mod proxy;
mod server;
mod tls;
