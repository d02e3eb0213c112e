//! Fields that are about a connection of HTTP/1.1, and malformed in HTTP/2 (RFC 9113, section 8.2.2) and HTTP/3 (RFC 9114,
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

/// Takes them out of a response. Hardly one has any, and few have many others: these are compared, where to look for each
/// of ours would cost a hash.
pub fn remove(fields: &mut HeaderMap) {
    if fields.keys().any(|name| NAMES.contains(name)) {
        for name in &NAMES {
            fields.remove(name);
        }
    }
}
