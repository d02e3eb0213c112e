//! Common parts of responses, over any protocol.

mod refusal;
pub mod request_record;

pub mod connection_fields;
pub mod date;

pub use refusal::Refusal;
pub use request_record::RequestRecord;
