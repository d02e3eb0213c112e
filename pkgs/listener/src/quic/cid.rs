//! Connection ids that name the worker they belong to.
//!
//! The kernel spreads datagrams over the workers' sockets by a hash of addresses and ports. A client whose
//! port changes (a NAT that forgot it, a phone that left its Wi-Fi) therefore reaches another worker, which
//! can see from the id alone whose connection it is. To anybody without the key an id is noise, and two ids
//! of one connection have nothing in common (RFC 9000, section 5.1).

use std::hash::{BuildHasher, Hasher, RandomState};

use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;
use siphasher::sip::SipHasher13;

/// Bytes of an id: as many as quinn's own have.
pub(super) const LENGTH: usize = 8;
/// Bytes of noise in an id.
const NONCE: usize = 5;

/// What makes and reads the ids of one listener; its workers share one key.
#[derive(Clone, Debug)]
pub(super) struct CidKey(SipHasher13);

impl PartialEq for CidKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys() == other.0.keys()
    }
}

impl Default for CidKey {
    /// Under a key nobody knows: that of the standard library's maps is random, and this is hashed by it.
    fn default() -> Self {
        let random = RandomState::new();
        Self(SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)))
    }
}

impl CidKey {
    /// The key, for the process that comes after this one.
    pub(super) fn to_text(&self) -> String {
        let (first, second) = self.0.keys();
        format!("{first:016x}{second:016x}")
    }

    /// CidKey under the key of the process before.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (first, second) = text.split_at_checked(16)?;
        let part = |text| u64::from_str_radix(text, 16).ok();
        Some(Self(SipHasher13::new_with_keys(part(first)?, part(second)?)))
    }

    /// The ids of `worker`'s connections, which also knows those of processes `before`.
    pub(super) fn generator(&self, worker: u8, before: Vec<Self>) -> CidGenerator {
        CidGenerator { ids: self.clone(), before, noise: RandomState::new(), made: 0, worker }
    }

    /// The worker that made an id; none if nobody here did. One foreign id in 65,536 passes for ours, and
    /// costs no more than a look by a worker that does not know it.
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

    /// The worker's mask and two bytes that tell our ids from others: SipHash under the key.
    fn mask(&self, nonce: &[u8]) -> [u8; LENGTH - NONCE] {
        let mut hasher = self.0;
        hasher.write(nonce);
        let [a, b, c, ..] = hasher.finish().to_le_bytes();
        [a, b, c]
    }
}

/// Makes the ids of one worker.
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

    /// Who sends to one that nobody knows any more, be it since a process before has ended, is told so.
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
        // Of all of them, with 40 bits that differ, two would be the same once in 22,000 runs.
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
