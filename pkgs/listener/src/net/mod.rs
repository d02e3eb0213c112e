//! Sockets, and the streams over them.

mod accepted_stream;
mod handshake_stream;
mod lazy_tcp_stream;
pub mod proxy;
pub mod sockopt;
mod transport;

pub use accepted_stream::AcceptedStream;
pub use handshake_stream::{HandshakeStream, NotTls};
pub use lazy_tcp_stream::LazyTcpStream;
pub use transport::Transport;
