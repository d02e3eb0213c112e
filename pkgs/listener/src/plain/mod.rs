//! Plain requests of HTTP/2 and HTTP/3, which a fast path is asked for as if they had come by HTTP/1.1.
//!
//! - `request`: the plain request that a field section is.
//! - `asking`: having the fast path answer it, in HTTP/1.1.
//! - `answer`: that answer, to be made frames of.

mod answer;
mod asking;
mod request;

pub use answer::PlainAnswer;
pub use asking::{Asking, with_buffers};
pub use request::PlainRequest;
