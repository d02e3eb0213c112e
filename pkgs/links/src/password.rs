//! Link passwords: argon2id hashes (RFC 9106) with the OWASP minimum parameters.

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};

/// The longest password, in bytes.
pub const MAX_BYTES: usize = 256;

/// Memory in KiB, passes and lanes: the least the OWASP Password Storage Cheat Sheet advises for argon2id.
const COST: (u32, u32, u32) = (19_456, 2, 1);

/// The most an imported hash may cost to verify, in the same units; a visitor makes us pay it.
const MAX_COST: (u32, u32, u32) = (65_536, 8, 8);

/// Why a password is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPassword {
    /// Nothing there.
    #[error("a password cannot be empty")]
    Empty,
    /// Longer than [`MAX_BYTES`].
    #[error("a password has at most {MAX_BYTES} bytes")]
    TooLong,
}

/// Whether a link may have this password.
pub fn check(password: &str) -> Result<(), InvalidPassword> {
    match password.len() {
        0 => Err(InvalidPassword::Empty),
        1..=MAX_BYTES => Ok(()),
        _ => Err(InvalidPassword::TooLong),
    }
}

/// The salted argon2id hash of a password, as a PHC string. Takes some 20 ms and 19 MiB.
pub fn hash(password: &str) -> Result<String, InvalidPassword> {
    check(password)?;
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None).expect("parameters within argon2's bounds");
    let hash = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password(password.as_bytes())
        .expect("the system has random bytes for a salt");
    Ok(hash.to_string())
}

/// Whether this is the password. Takes as long as [`hash`]; a text that is no hash matches nothing.
pub fn verify(password: &str, phc: &str) -> bool {
    check(password).is_ok()
        && parse(phc)
            .is_some_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Whether a text is an argon2 hash that [`verify`] takes: a PHC string with salt and hash, of bounded cost.
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
