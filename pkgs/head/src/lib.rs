//! Parses the head of an HTTP/1.1 request as strictly as RFC 9112 allows. It refuses everything that two servers could
//! parse differently, since such requests can be used for request smuggling.
//!
//! ```text
//! bytes ─▶ lines: method, target, fields ─▶ message: framing, keep-alive, 100-continue ─▶ body: Length, or chunked
//! ```
//!
//! ```
//! use request_head::{Framing, Lines, Message, room};
//!
//! let bytes = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nAccept: */*\r\n\r\nabc";
//! let mut room = room::<64>();
//! let lines = Lines::read(bytes, &mut room, 8192)?.expect("a whole head");
//! let mut message = Message::new(lines.old);
//! let mut accept = None;
//! for field in lines.fields {
//!     if !message.takes(field.name, field.value)? && field.name.eq_ignore_ascii_case("accept") {
//!         accept = Some(field.value);
//!     }
//! }
//! let message = message.settle()?;
//! assert_eq!((lines.method, lines.target, accept), ("POST", "/a", Some(&b"*/*"[..])));
//! assert_eq!((message.framing, message.keep_alive), (Framing::Length(3), true));
//! assert_eq!(&bytes[lines.length..], b"abc");
//! # Ok::<(), request_head::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod chunked;
mod error;
mod lines;
mod message;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use httparse::Header;
pub use lines::{Lines, Room, room};
pub use message::{Framing, Message, is_named};
