//! The visitor who sends a request, and the cookie that recognises them.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use service::request_id::RequestId;

use crate::session::Grant;

/// Somebody who requests a page.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// The credentials for the services; none before signing in.
    pub(crate) grant: Option<Grant>,
    /// The cookie's value. It belongs to a session or, before signing in, only to forms.
    pub(crate) cookie: String,
    /// The token for forms.
    pub(crate) form: String,
    /// Whether the cookie belongs to a session.
    pub(crate) session: bool,
    /// Whether the connection uses TLS.
    pub(crate) secure: bool,
    /// Their address.
    pub(crate) address: Option<IpAddr>,
    /// The request's ID, for the access log and a proxy in front.
    pub(crate) request: RequestId,
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get().cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The name of the cookie. Because of its prefix, browsers accept it only from this host and only over TLS (RFC
/// 6265bis).
fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-linerate" } else { "linerate" }
}

/// The value of the cookie, if it has the format of the console's cookies.
pub(crate) fn cookie(fields: &HeaderMap, secure: bool) -> Option<String> {
    let all = fields.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == cookie_name(secure))?;
    let ours = value.len() == 48 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    ours.then(|| value.to_owned())
}

/// A cookie that scripts can't read and that browsers don't send with cross-site requests.
pub(crate) fn set_cookie(value: &str, secure: bool, seconds: u64) -> HeaderValue {
    let name = cookie_name(secure);
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    // The text has only letters, digits and signs.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_taken_only_as_we_make_them() {
        let value = "0123456789abcdef".repeat(3);
        for (text, secure, expected) in [
            (format!("linerate={value}"), false, true),
            (format!("a=b; linerate={value}; c=d"), false, true),
            (format!("linerate={value}"), true, false),
            (format!("__Host-linerate={value}"), true, true),
            (format!("linerate={}", &value[1..]), false, false),
            (format!("linerate={}", value.replace('a', "!")), false, false),
            (format!("other={value}"), false, false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(header::COOKIE, HeaderValue::from_str(&text).expect("a value"));
            assert_eq!(cookie(&fields, secure), expected.then(|| value.clone()), "{text}");
        }
    }
}
