//! Connection ids that name the worker of their connection.
//!
//! The kernel distributes datagrams over the workers' sockets by a hash of addresses and ports. If a client's port
//! changes (a NAT forgot it, a phone left its Wi-Fi), its datagrams reach another worker, which can tell from the id
//! alone whose connection it is. Without the key an id is noise, and two ids of one connection have nothing in common
//! (RFC 9000, section 5.1).

use std::hash::{BuildHasher, Hasher, RandomState};

use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;
use siphasher::sip::SipHasher13;

/// The length of an id, in bytes, as in quinn.
pub(super) const LENGTH: usize = 8;
/// The most workers, since an id has one byte for its worker.
pub(super) const WORKERS: usize = 256;
/// Random bytes in an id.
const NONCE: usize = 5;

/// Makes and reads the ids of one listener. Its workers share one key.
#[derive(Clone, Debug)]
pub(super) struct CidKey(SipHasher13);

impl PartialEq for CidKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys() == other.0.keys()
    }
}

impl Default for CidKey {
    /// A random key: the standard library's maps have one, and this hashes with it.
    fn default() -> Self {
        let random = RandomState::new();
        Self(SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)))
    }
}

impl CidKey {
    /// The key as text, for the next process.
    pub(super) fn to_text(&self) -> String {
        let (first, second) = self.0.keys();
        format!("{first:016x}{second:016x}")
    }

    /// The key of the previous process.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (first, second) = text.split_at_checked(16)?;
        let part = |text| u64::from_str_radix(text, 16).ok();
        Some(Self(SipHasher13::new_with_keys(part(first)?, part(second)?)))
    }

    /// Generates ids for `worker`'s connections. It also accepts those of processes `before`.
    pub(super) fn generator(&self, worker: u8, before: Vec<Self>) -> CidGenerator {
        CidGenerator { ids: self.clone(), before, noise: RandomState::new(), made: 0, worker }
    }

    /// The worker that made an id. None if no worker here did. One foreign id in 65,536 passes as ours, and then only
    /// costs a worker a look-up.
    pub(super) fn worker(&self, id: &[u8]) -> Option<u8> {
        let (nonce, sealed) = id.split_at_checked(NONCE)?;
        let mask = self.mask(nonce);
        (sealed[1..] == mask[1..]).then_some(sealed[0] ^ mask[0])
    }

    fn seal(&self, nonce: &[u8; NONCE], worker: u8) -> [u8; LENGTH] {
        let mask = self.mask(nonce);
        let mut id = [0; LENGTH];
        id[..NONCE].copy_from_slice(nonce);
        id[NONCE..].copy_from_slice(&[worker ^ mask[0], mask[1], mask[2]]);
        id
    }

    /// The worker's mask, and two bytes that distinguish our ids from others: SipHash under the key.
    fn mask(&self, nonce: &[u8]) -> [u8; LENGTH - NONCE] {
        let mut hasher = self.0;
        hasher.write(nonce);
        let [a, b, c, ..] = hasher.finish().to_le_bytes();
        [a, b, c]
    }
}

/// Generates the ids of one worker.
pub(super) struct CidGenerator {
    ids: CidKey,
    before: Vec<CidKey>,
    noise: RandomState,
    made: u64,
    worker: u8,
}

impl ConnectionIdGenerator for CidGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.made += 1;
        let [a, b, c, d, e, ..] = self.noise.hash_one(self.made).to_le_bytes();
        ConnectionId::new(&self.ids.seal(&[a, b, c, d, e], self.worker))
    }

    /// A client that uses an unknown id, for instance after its process has ended, is told so.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let mut known = std::iter::once(&self.ids).chain(&self.before);
        known.find_map(|ids| ids.worker(id)).map(|_| ()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_worker() {
        let ids = CidKey::default();
        for worker in [0, 1, 7, u8::MAX] {
            let mut generator = ids.generator(worker, Vec::new());
            for _ in 0..1_000 {
                let id = generator.generate_cid();
                assert_eq!(id.len(), generator.cid_len());
                assert_eq!(ids.worker(&id), Some(worker));
                assert!(generator.validate(&id).is_ok());
            }
        }
    }

    #[test]
    fn the_process_that_comes_after_knows_the_ids() {
        let ids = CidKey::default();
        let heir = CidKey::from_text(&ids.to_text()).expect("it is a key");
        let id = ids.generator(5, Vec::new()).generate_cid();
        assert_eq!(heir.worker(&id), Some(5));
        let next = |before| CidKey::default().generator(0, before).validate(&id);
        assert!(next(vec![heir]).is_ok() && next(Vec::new()).is_err());
        for text in ["", "0123", "not a key of thirty-two letters."] {
            assert!(CidKey::from_text(text).is_none(), "{text}");
        }
    }

    #[test]
    fn ids_do_not_repeat_and_share_no_byte_that_stays() {
        let mut generator = CidKey::default().generator(3, Vec::new());
        let made: Vec<_> = (0..10_000).map(|_| generator.generate_cid()).collect();
        // With 40 differing bits, two of all of them would be equal once in 22,000 runs.
        assert_eq!(made[..500].iter().collect::<std::collections::HashSet<_>>().len(), 500);
        for byte in 0..LENGTH {
            let values: std::collections::HashSet<_> = made.iter().map(|id| id[byte]).collect();
            assert_eq!(values.len(), 256, "byte {byte} takes every value");
        }
    }

    #[test]
    fn ids_of_others_are_seldom_taken_for_ours() {
        let ids = CidKey::default();
        let mut other = CidKey::default().generator(1, Vec::new());
        let taken = (0..100_000).filter(|_| ids.worker(&other.generate_cid()).is_some()).count();
        assert!(taken < 30, "{taken} of 100,000, where 1.5 are expected");
        for short in [&[][..], &[1, 2, 3, 4]] {
            assert_eq!(ids.worker(short), None);
        }
    }
}
