//! Common parts of responses, over any protocol.

mod refusal;
pub mod request_record;
mod send_buffer;

pub mod connection_fields;
pub mod date;

pub use refusal::Refusal;
pub use request_record::RequestRecord;
pub use send_buffer::{PIECE_BYTES, Room, SendBuffer};
