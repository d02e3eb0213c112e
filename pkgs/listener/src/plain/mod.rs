//! Plain requests of HTTP/2 and HTTP/3, which a fast path answers as if they had come over HTTP/1.1.
//!
//! - `request`: the plain request in a field section.
//! - `asking`: has the fast path answer it, in HTTP/1.1.
//! - `answer`: that answer, to be turned into frames.

mod answer;
mod asking;
mod request;

pub use answer::PlainAnswer;
pub use asking::{Asking, with_buffers};
pub use request::PlainRequest;
