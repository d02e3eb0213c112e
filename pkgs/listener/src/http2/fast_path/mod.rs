//! Plain requests that the fast path answers before h2 sees them. Nearly all of links' requests are plain.
//!
//! This layer is between h2 and the connection, and reads the client's frames one by one. A plain request is answered
//! at once from its field section. Everything else passes to h2: requests that the fast path declines, and anything
//! unusual or wrong. For h2, the streams that it does not see were passed over.
//!
//! This layer reads all field sections, so it keeps the table that they refer to. h2 receives field sections that
//! refer to no table; everything else passes unchanged.
//!
//! - [`io`]: the bytes in both directions.
//! - `client_frames`: decides about a client's frames.
//! - `field_sections`: complete field sections, and their form for h2.
//! - `server_frames`: tracks what h2 writes, and corrects what it says about the last stream.
//! - `windows`: how much of an answer the client accepts.
//! - [`hpack`], `answer`: decode requests and encode answers.
//! - [`shared`]: what the connection's task knows about it, and answers without room, which h2 sends.

mod answer;
mod client_frames;
mod field_sections;
pub mod hpack;
mod io;
mod server_frames;
mod shared;
mod windows;

pub use io::FastPathIo;
pub use shared::{Shared, send};
