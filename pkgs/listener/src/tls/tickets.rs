//! Session tickets, with keys that are rotated, and that the next process continues to use.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, rand};
use data_encoding::HEXLOWER;
use rustls::server::ProducesTickets;
use service::handover;

use super::Error;
use crate::config::{self, TICKET_KEY};

/// The length of a key, in bytes.
const SECRET: usize = 32;

/// The length of a key's name in a ticket, in bytes.
const NAME: usize = 16;

/// Makes and opens the tickets of all workers, over TCP and QUIC, with a new key at the configured interval. If another
/// process hands over its keys, clients can resume its sessions with this process.
///
/// # Errors
/// When there are no random numbers.
pub(super) fn new(config: &config::Tls) -> Result<Arc<dyn ProducesTickets>, Error> {
    let name = name(config);
    let now = now();
    let handed = handover::told(&name).and_then(|text| Keys::from_text(&text));
    let keys = handed.or_else(|| Keys::random(now)).ok_or(Error::Tickets)?;
    let lifetime = config.ticket_key.clamp(Duration::from_secs(1), TICKET_KEY).as_secs();
    let tickets = Arc::new(Tickets { keys: RwLock::new(keys), lifetime });
    let told = Arc::clone(&tickets);
    handover::tell_later(&name, move || told.present(self::now()).to_text());
    Ok(tickets)
}

/// The name under which the next process finds the keys: those of the listener with the same certificates.
fn name(config: &config::Tls) -> String {
    let mut files = digest::Context::new(&digest::SHA256);
    for certificate in &config.certificates {
        files.update(certificate.chain.as_os_str().as_encoded_bytes());
        files.update(&[0]);
    }
    format!("session tickets {}", HEXLOWER.encode(&files.finish().as_ref()[..NAME]))
}

/// Seconds since 1970, which the next process also counts from.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

struct Tickets {
    keys: RwLock<Keys>,
    /// How long a key makes tickets, in seconds, and how long clients are told that tickets last.
    lifetime: u64,
}

/// The current key, and the previous one.
struct Keys {
    current: Key,
    previous: Option<Key>,
    /// When the current one was made.
    since: u64,
}

/// A key, and its name, with which its tickets start.
struct Key {
    secret: [u8; SECRET],
    name: [u8; NAME],
    // Random nonces occasionally repeat, which does not harm this cipher (RFC 8452).
    cipher: RandomizedNonceKey,
}

impl Key {
    fn new(secret: [u8; SECRET]) -> Option<Self> {
        let digest = digest::digest(&digest::SHA256, &secret);
        let name = digest.as_ref().first_chunk().copied()?;
        Some(Self { secret, name, cipher: RandomizedNonceKey::new(&AES_256_GCM_SIV, &secret).ok()? })
    }

    fn random() -> Option<Self> {
        let mut secret = [0; SECRET];
        rand::fill(&mut secret).ok()?;
        Self::new(secret)
    }

    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.cipher.seal_in_place_append_tag(Aad::from(self.name), &mut sealed).ok()?;
        Some([&self.name, &nonce.as_ref()[..], &sealed].concat())
    }

    /// Opens the part of a ticket after the name.
    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.cipher.open_in_place(nonce, Aad::from(self.name), &mut sealed).ok()?.len();
        sealed.truncate(plain);
        Some(sealed)
    }
}

impl Keys {
    fn random(now: u64) -> Option<Self> {
        Some(Self { current: Key::random()?, previous: None, since: now })
    }

    /// The keys as text for the next process.
    fn to_text(&self) -> String {
        let previous = self.previous.as_ref().map(|key| HEXLOWER.encode(&key.secret)).unwrap_or_default();
        format!("{} {} {previous}", self.since, HEXLOWER.encode(&self.current.secret))
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let (since, current, previous) = (parts.next()?, parts.next()?, parts.next()?);
        let key = |text: &str| Key::new(HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()?);
        let previous = if previous.is_empty() { None } else { Some(key(previous)?) };
        Some(Self { current: key(current)?, previous, since: since.parse().ok()? })
    }
}

impl Tickets {
    /// The keys, with a new one if the current one's time is up. Without random numbers, the current one stays.
    fn present(&self, now: u64) -> RwLockReadGuard<'_, Keys> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        if !self.is_old(&keys, now) {
            return keys;
        }
        drop(keys);
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_old(&keys, now)
            && let Some(next) = Key::random()
        {
            let previous = std::mem::replace(&mut keys.current, next);
            (keys.previous, keys.since) = (Some(previous), now);
        }
        drop(keys);
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key from the future means that the clock was set back, so the key would stay too long.
    fn is_old(&self, keys: &Keys, now: u64) -> bool {
        now.checked_sub(keys.since).is_none_or(|age| age >= self.lifetime)
    }

    fn seal(&self, plain: &[u8], now: u64) -> Option<Vec<u8>> {
        self.present(now).current.seal(plain)
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_first_chunk::<NAME>()?;
        let keys = self.present(now);
        let key = [Some(&keys.current), keys.previous.as_ref()].into_iter().flatten();
        key.into_iter().find(|key| key.name == *name)?.open(sealed)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.lifetime).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, now())
    }
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 1_000_000;
    const LIFETIME: u64 = 100;

    fn tickets(keys: Keys) -> Tickets {
        Tickets { keys: RwLock::new(keys), lifetime: LIFETIME }
    }

    fn fresh() -> Tickets {
        tickets(Keys::random(BEGIN).expect("random numbers"))
    }

    #[test]
    fn a_ticket_is_opened_under_its_key_and_the_next_and_no_more() {
        let tickets = fresh();
        let ticket = tickets.seal(b"session", BEGIN).expect("a key");
        // The first use after its time replaces the key, however late that is.
        for (now, opened) in [
            (BEGIN, true),
            (BEGIN + LIFETIME - 1, true),
            (BEGIN + 5 * LIFETIME, true),
            (BEGIN + 6 * LIFETIME - 1, true),
            (BEGIN + 6 * LIFETIME, false),
            (BEGIN + 6 * LIFETIME, false),
        ] {
            let expected = opened.then_some(&b"session"[..]);
            assert_eq!(tickets.open(&ticket, now).as_deref(), expected, "{now}");
        }
        let now = BEGIN + 6 * LIFETIME;
        let again = tickets.seal(b"again", now).expect("a key");
        assert_eq!(tickets.open(&again, now).as_deref(), Some(&b"again"[..]));
    }

    #[test]
    fn a_clock_that_is_set_back_ends_a_key() {
        let tickets = fresh();
        let ticket = tickets.seal(b"session", BEGIN).expect("a key");
        assert!(tickets.open(&ticket, BEGIN - 1).is_some());
        assert!(tickets.open(&ticket, BEGIN - 1 + LIFETIME).is_none());
    }

    #[test]
    fn the_next_process_opens_what_this_one_made() {
        let old = fresh();
        let first = old.seal(b"first", BEGIN).expect("a key");
        let now = BEGIN + LIFETIME;
        let second = old.seal(b"second", now).expect("a key");
        let new = tickets(Keys::from_text(&old.present(now).to_text()).expect("keys"));
        for ticket in [&first, &second] {
            assert_eq!(new.open(ticket, now + 1), old.open(ticket, now + 1));
        }
        assert!(new.open(&second, now + LIFETIME).is_some_and(|plain| plain == b"second"));
        assert!(new.open(&first, now + LIFETIME).is_none(), "its time goes on");
        let only = tickets(Keys::from_text(&fresh().present(BEGIN).to_text()).expect("keys"));
        assert!(only.open(&second, now).is_none(), "of others");
    }

    #[test]
    fn what_is_no_ticket_and_what_are_no_keys_is_refused() {
        let tickets = fresh();
        let ticket = tickets.seal(b"session", BEGIN).expect("a key");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.open(&changed, BEGIN), None, "byte {at}");
            assert_eq!(tickets.open(&ticket[..at], BEGIN), None, "{at} bytes");
        }
        let secret = "0f".repeat(SECRET);
        for (text, known) in [
            (format!("1 {secret} "), true),
            (format!("1 {secret} {secret}"), true),
            (String::new(), false),
            (format!("1 {secret}"), false),
            (format!("x {secret} "), false),
            (format!("1 {secret}0f "), false),
            (format!("1 {secret} 0f"), false),
            (format!("1 {} ", "zz".repeat(SECRET)), false),
            (format!("1 {} ", "é".repeat(SECRET)), false),
        ] {
            assert_eq!(Keys::from_text(&text).is_some(), known, "{text}");
        }
    }
}
