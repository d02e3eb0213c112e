//! Protects forms against CSRF. Each form has a token that only a page of the console can read, and must be sent from
//! one of the console's pages.

use data_encoding::HEXLOWER;
use http::HeaderMap;
use http::header;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The form field that holds the token.
pub(crate) const FIELD: &str = "csrf";

/// The secret that tokens are derived from; each process makes a new one.
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Makes a new secret.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The token for the forms of the session or visitor with this cookie.
    pub(crate) fn token(&self, of: &str) -> String {
        let digest: [u8; 32] = Sha256::new().chain_update(self.0).chain_update(of).finalize().into();
        HEXLOWER.encode(&digest[..16])
    }
}

/// Whether a form's token is the expected one, compared in constant time.
pub(crate) fn matches(token: &str, expected: &str) -> bool {
    token.as_bytes().ct_eq(expected.as_bytes()).into()
}

/// Whether a form was sent from one of the console's pages. Browsers send `Origin` or, without that, `Sec-Fetch-Site`.
/// A request with neither doesn't come from a current browser and is refused.
pub(crate) fn same_origin(fields: &HeaderMap, authority: Option<&str>) -> bool {
    let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
    match text(header::ORIGIN) {
        Some(origin) => {
            let from = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            from.zip(authority).is_some_and(|(from, ours)| from.eq_ignore_ascii_case(ours))
        }
        None => fields.get("sec-fetch-site").is_some_and(|site| site == "same-origin"),
    }
}

/// Random bytes in hexadecimal, with twice as many digits as bytes.
///
/// # Errors
/// When the system has no randomness.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_session_of_one_process() {
        let (secret, other) = (Secret::new().expect("random"), Secret::new().expect("random"));
        let token = secret.token("session");
        assert!(matches(&token, &secret.token("session")));
        assert!(!matches(&token, &secret.token("another")) && !matches(&token, &other.token("session")));
        assert!(!matches("", &token) && !matches(&token[1..], &token));
    }

    #[test]
    fn forms_of_other_pages_are_told_by_their_origin() {
        for (fields, ours) in [
            (&[("origin", "http://127.0.0.1:8110")][..], true),
            (&[("origin", "https://127.0.0.1:8110")], true),
            (&[("origin", "http://127.0.0.1:8111")], false),
            (&[("origin", "http://evil.example")], false),
            (&[("origin", "null")], false),
            (&[("origin", "null"), ("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[], false),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in fields {
                map.insert(*name, value.parse().expect("a value"));
            }
            assert_eq!(same_origin(&map, Some("127.0.0.1:8110")), ours, "{fields:?}");
        }
        assert!(!same_origin(&HeaderMap::new(), None));
    }
}
