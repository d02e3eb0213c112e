//! URLs that are valid for a limited time: `?expires=SECONDS&signature=TEXT`. The text is the HMAC-SHA-256 of path and
//! time, in base64url. Other parameters are not signed.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// The shortest key, in bytes: as long as the digest (RFC 2104, section 3).
pub const MIN_KEY_BYTES: usize = 32;

/// The names of the parameters.
const PARAMETERS: [&str; 2] = ["expires", "signature"];

/// A key for signing URLs.
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// From the bytes of a file, without surrounding white space; none if there are too few.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.trim_ascii();
        (bytes.len() >= MIN_KEY_BYTES).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The query of a URL for a decoded path, including its leading slash, that is valid until a time in seconds since
    /// 1970.
    pub fn sign(&self, path: &[u8], expires: u64) -> String {
        let signature = hmac::sign(&self.0, &message(path, expires));
        format!("expires={expires}&signature={}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// Whether a query belongs to a signed URL for a path and is still valid at the time `now`.
    pub fn is_signed(&self, path: &[u8], query: Option<&str>, now: SystemTime) -> bool {
        let mut found = [None; 2];
        for parameter in query.unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if let Some(at) = PARAMETERS.iter().position(|known| *known == name)
                && found[at].replace(value).is_some()
            {
                return false;
            }
        }
        let [Some(expires), Some(signature)] = found else { return false };
        // Only in its canonical form: with leading zeros or signs, it would be another URL.
        let Some(expires) = expires.parse().ok().filter(|number: &u64| number.to_string() == expires) else {
            return false;
        };
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let Ok(signature) = BASE64_URL_SAFE_NO_PAD.decode(signature) else { return false };
        now < expires && hmac::verify(&self.0, &message(path, expires), &signature).is_ok()
    }
}

/// A query without the signature's parameters.
pub fn unsigned(query: &str) -> String {
    let is_own = |parameter: &&str| {
        let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
        !PARAMETERS.contains(&name)
    };
    query.split('&').filter(is_own).collect::<Vec<_>>().join("&")
}

fn message(path: &[u8], expires: u64) -> Vec<u8> {
    [expires.to_string().as_bytes(), b"\n", path].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_url_that_was_signed_is_valid_and_only_for_a_while() {
        assert!(Key::new(&[b'k'; MIN_KEY_BYTES - 1]).is_none());
        assert!(Key::new(&[b' '; 2 * MIN_KEY_BYTES]).is_none());
        let key = Key::new(&[b'k'; MIN_KEY_BYTES]).expect("a key");
        let other = Key::new(&[b'l'; MIN_KEY_BYTES]).expect("a key");
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let query = key.sign(b"/a", 1000);
        let signature = query.split_once("signature=").expect("a signature").1;
        assert!(key.is_signed(b"/a", Some(&query), at(999)));
        assert!(key.is_signed(b"/a", Some(&format!("x=1&{query}&y")), at(0)));
        assert!(!key.is_signed(b"/a", Some(&query), at(1000)));
        assert!(!key.is_signed(b"/b", Some(&query), at(0)));
        assert!(!other.is_signed(b"/a", Some(&query), at(0)));
        for query in [
            String::new(),
            "expires=1000".to_owned(),
            "expires=1000&signature=".to_owned(),
            format!("expires=2000&signature={signature}"),
            format!("expires=01000&signature={signature}"),
            format!("expires=+1000&signature={signature}"),
            format!("expires=1000&signature={signature}="),
            format!("expires=1000&signature={}", &signature[1..]),
            format!("{query}&expires=1000"),
            format!("signature={signature}&{query}"),
            format!("Expires=1000&signature={signature}"),
        ] {
            assert!(!key.is_signed(b"/a", Some(&query), at(0)), "{query}");
        }
        assert!(!key.is_signed(b"/a", None, at(0)));
        assert_eq!(unsigned(&format!("sort=name&{query}&x")), "sort=name&x");
    }
}
