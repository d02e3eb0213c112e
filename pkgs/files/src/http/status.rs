//! Status codes (RFC 9110, section 15; RFC 6585).

use http::StatusCode;

/// The reason phrase of a status.
pub fn phrase(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown")
}
