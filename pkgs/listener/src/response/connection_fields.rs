//! Fields about an HTTP/1.1 connection, which are malformed in HTTP/2 (RFC 9113, section 8.2.2) and HTTP/3 (RFC 9114,
//! section 4.2).

use http::HeaderMap;
use http::header::{self, HeaderName};

static NAMES: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Whether there are any.
pub fn has(fields: &HeaderMap) -> bool {
    NAMES.iter().any(|name| fields.contains_key(name))
}

/// Removes them from a response. Hardly any response has one, and few have many fields: comparing all fields is cheaper
/// than a hash look-up for each of these names.
pub fn remove(fields: &mut HeaderMap) {
    if fields.keys().any(|name| NAMES.contains(name)) {
        for name in &NAMES {
            fields.remove(name);
        }
    }
}
