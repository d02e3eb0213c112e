//! Requests that the fast path answers before h2 sees them: plain ones, as nearly all of links' are.
//!
//! It stands between h2 and the connection, and reads what the client sends frame by frame. A plain request is answered at once,
//! from its field section; everything else passes to h2, whether that is a request that the fast path declines or whatever is odd
//! or wrong. h2 takes the streams that it does not see for ones that were passed over.
//!
//! The table to which a client's field sections refer is here, since all of them are read here. What h2 is given of them refers to
//! none; everything else passes as it came.
//!
//! - [`io`]: the bytes, both ways.
//! - `client_frames`: what becomes of a client's frames.
//! - `field_sections`: whole field sections, and as h2 is given them.
//! - `server_frames`: where h2 is in what it writes, and what it says of the last stream.
//! - `windows`: how much of an answer the client takes.
//! - [`hpack`], `frame`, `answer`: reading requests and writing answers.
//! - [`shared`]: what the connection's task knows of it, and answers for which there is no room, which h2 sends.

mod answer;
mod client_frames;
mod field_sections;
mod frame;
pub mod hpack;
mod io;
mod server_frames;
mod shared;
mod windows;

pub use io::FastPathIo;
pub use shared::{Shared, send};
