//! Passwords: argon2id hashes (RFC 9106) with the OWASP minimum parameters.

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};

/// The longest password, in bytes.
pub const MAX_BYTES: usize = 256;

/// Memory in KiB, passes and lanes: the minimum that the OWASP Password Storage Cheat Sheet recommends for argon2id.
const COST: (u32, u32, u32) = (19_456, 2, 1);

/// The most that verifying a foreign hash may cost, in the same units, since visitors can trigger it.
const MAX_COST: (u32, u32, u32) = (65_536, 8, 8);

/// Why a password is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPassword {
    /// It is empty.
    #[error("a password cannot be empty")]
    Empty,
    /// It is longer than [`MAX_BYTES`].
    #[error("a password has at most {MAX_BYTES} bytes")]
    TooLong,
}

/// Checks whether this may be a password.
pub fn check(password: &str) -> Result<(), InvalidPassword> {
    match password.len() {
        0 => Err(InvalidPassword::Empty),
        1..=MAX_BYTES => Ok(()),
        _ => Err(InvalidPassword::TooLong),
    }
}

/// The salted argon2id hash of a password, as a PHC string. Takes about 20 ms and 19 MiB.
pub fn hash(password: &str) -> Result<String, InvalidPassword> {
    check(password)?;
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None).expect("parameters within argon2's bounds");
    let hash = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password(password.as_bytes())
        .expect("the system has random bytes for a salt");
    Ok(hash.to_string())
}

/// Whether this is the password. Takes as long as [`hash`]. A text that is not a hash matches nothing.
pub fn verify(password: &str, phc: &str) -> bool {
    check(password).is_ok()
        && parse(phc)
            .is_some_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Whether [`verify`] accepts this text: an argon2 PHC string with salt and hash, of bounded cost.
pub fn is_hash(phc: &str) -> bool {
    parse(phc).is_some()
}

fn parse(phc: &str) -> Option<PasswordHash> {
    let hash = PasswordHash::new(phc).ok()?;
    Algorithm::try_from(hash.algorithm.as_str()).ok()?;
    Version::try_from(hash.version?).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let affordable =
        params.m_cost() <= MAX_COST.0 && params.t_cost() <= MAX_COST.1 && params.p_cost() <= MAX_COST.2;
    (affordable && hash.salt.is_some() && hash.hash.is_some()).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_itself_verifies() {
        let longest = "\u{fc}".repeat(MAX_BYTES / 2);
        for password in ["x", "correct horse", &longest] {
            let phc = hash(password).unwrap();
            assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
            assert!(is_hash(&phc), "{phc}");
            assert!(verify(password, &phc));
            for other in ["", "X", "correct horse ", &longest[2..], &format!("{longest}x")] {
                assert!(!verify(other, &phc), "{other:?} for {password:?}");
            }
        }
    }

    #[test]
    fn the_same_password_never_has_the_same_hash() {
        assert_ne!(hash("x"), hash("x"));
    }

    #[test]
    fn passwords_are_bounded() {
        assert_eq!(hash(""), Err(InvalidPassword::Empty));
        assert_eq!(hash(&"x".repeat(MAX_BYTES + 1)), Err(InvalidPassword::TooLong));
    }

    #[test]
    fn only_argon2_hashes_of_bounded_cost_are_hashes() {
        let rest = "c29tZXNhbHQxMjM0NTY3OA$AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
        for (start, sound) in [
            ("$argon2id$v=19$m=19456,t=2,p=1$", true),
            ("$argon2i$v=19$m=65536,t=8,p=8$", true),
            ("$argon2id$v=19$m=65537,t=2,p=1$", false),
            ("$argon2id$v=19$m=4294967295,t=2,p=1$", false),
            ("$argon2id$v=19$m=19456,t=9,p=1$", false),
            ("$argon2id$v=19$m=19456,t=2,p=9$", false),
            ("$argon2id$v=18$m=19456,t=2,p=1$", false),
            ("$scrypt$ln=16,r=8,p=1$", false),
            ("", false),
        ] {
            let phc = format!("{start}{rest}");
            assert_eq!(is_hash(&phc), sound, "{phc}");
            assert!(sound || !verify("x", &phc), "{phc}");
        }
        for text in ["", "x", "$argon2id$v=19$m=19456,t=2,p=1", "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ"]
        {
            assert!(!is_hash(text) && !verify("x", text), "{text}");
        }
    }
}
