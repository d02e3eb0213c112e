//! API keys: what a client holds, and what is kept of it.

use std::fmt;

use sha2::{Digest, Sha256};

/// What every key begins with, so that people and scanners of leaked secrets know one.
const PREFIX: &str = "lrk_";

/// Random bytes of a key.
const SECRET_BYTES: usize = 32;

/// Bytes of the check behind them, by which a mistyped key is known without asking a database.
const CHECK_BYTES: usize = 4;

/// A key's secret, for the one who will use it: `lrk_`, 64 digits at random and 8 that check them. Kept is only the
/// SHA-256 of all of it, which for so much randomness is as good as a slow hash, and is what a key is looked up by: how
/// long that takes tells nothing of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// One that none has had before.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut random = [0; SECRET_BYTES];
        getrandom::fill(&mut random)?;
        let secret = format!("{PREFIX}{}", Hex(&random));
        let check = check(&secret);
        Ok(Self(format!("{secret}{}", Hex(&check))))
    }

    /// The digest of a text, if it can be a key.
    pub fn digest_of(text: &str) -> Option<[u8; 32]> {
        let length = PREFIX.len() + 2 * (SECRET_BYTES + CHECK_BYTES);
        let lower = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        let digits = text.strip_prefix(PREFIX).filter(|_| text.len() == length)?;
        if !digits.bytes().all(lower) {
            return None;
        }
        let (secret, given) = text.split_at(length - 2 * CHECK_BYTES);
        let known = Hex(&check(secret)).to_string();
        (given == known).then(|| Sha256::digest(text).into())
    }

    /// What is kept.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Without the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

fn check(secret: &str) -> [u8; CHECK_BYTES] {
    let digest = Sha256::digest(secret);
    std::array::from_fn(|index| digest[index])
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_check() {
        let secret = Secret::generate().expect("randomness");
        let text = secret.expose();
        assert!(text.starts_with("lrk_") && text.len() == 76, "{text}");
        assert_eq!(Secret::digest_of(text), Some(secret.digest()));
        assert_ne!(Secret::generate().expect("randomness"), secret);
        for at in 4..text.len() {
            let mut changed = text.to_owned();
            let other = if &text[at..=at] == "0" { "1" } else { "0" };
            changed.replace_range(at..=at, other);
            assert_eq!(Secret::digest_of(&changed), None, "{at}");
        }
        for other in ["", "lrk_", &text[..75], &format!("{text}0"), &text.to_uppercase()] {
            assert_eq!(Secret::digest_of(other), None, "{other}");
        }
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
