//! A worker's own cache.

use std::hash::BuildHasher;
use std::sync::Arc;

use crate::domains::DomainId;
use crate::store::{Error, Reader, Route};

use super::entry::Entry;
use super::{Cache, Source, with_key};

/// Slots per set. With 10,000 codes in use, one code in 30 is in a set with more codes than slots. With the same number
/// of sets but one slot each, it would be seven in ten.
const WAYS: usize = 4;

/// Sets of a new table: 256 slots in 4 KiB.
const FIRST_SETS: usize = 1 << 6;

/// Sets of a table at most: 32,768 slots in 512 KiB.
pub(super) const MOST_SETS: usize = 1 << 13;

/// How many times as many sets a table gets when a code finds no slot.
const GROWTH: usize = 4;

/// The longest code and target in a slot, in bytes, so that a table holds at most 32 MiB. Longer ones are looked up in
/// the shared cache each time.
pub(super) const LOCAL_TEXT_BYTES: usize = 1 << 10;

/// Every 64th hit in a worker's table is repeated on the shared cache, so that its eviction policy sees which links are
/// popular.
const TOUCH_EVERY: u32 = 64;

/// A worker's own table, four-way associative: a code belongs to one set, and may be in any of its slots. It grows with
/// the codes in use.
pub struct LocalCache {
    cache: Arc<Cache>,
    pub(super) sets: Box<[Set]>,
    /// The last entry that is too long for a slot.
    other: Option<Entry>,
    hits: u32,
    /// The next slot to replace if a set is full.
    victim: u8,
}

/// One cache line (64 bytes). Tags tell which slot may hold the entry.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Set {
    tags: [u32; WAYS],
    pub(super) slots: [Option<Entry>; WAYS],
}

impl LocalCache {
    /// An empty table in front of `cache`.
    pub fn new(cache: Arc<Cache>) -> Self {
        let sets = if cache.entries.is_some() { FIRST_SETS } else { 0 };
        Self { cache, sets: empty(sets), other: None, hits: 0, victim: 0 }
    }

    /// Looks up a code of the default domain. Reads the store if no layer knows it.
    pub fn find(&mut self, code: &str, reader: &Reader) -> Result<(&Entry, Source), Error> {
        self.find_at(DomainId::DEFAULT, code, reader)
    }

    /// Like [`find`](Self::find), for a well-formed code at a domain.
    #[inline]
    pub fn find_at(
        &mut self,
        domain: DomainId,
        code: &str,
        reader: &Reader,
    ) -> Result<(&Entry, Source), Error> {
        with_key(domain, code, move |key| self.look(key, || reader.route_at(domain, code)))
    }

    #[inline]
    fn look(
        &mut self,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<Route>, Error>,
    ) -> Result<(&Entry, Source), Error> {
        let hash = self.cache.hasher.hash_one(key);
        let stamp = self.cache.generations.stamp(hash);
        if self.sets.is_empty() {
            let (entry, source) = self.cache.shared((key, hash), stamp, read)?;
            return Ok((self.other.insert(entry), source));
        }
        // The low bits choose the stripe, the high ones are the tag, and those between choose the set.
        let tag = (hash >> 32) as u32;
        let index = |sets: usize| (hash >> 16) as usize & (sets - 1);
        let place = index(self.sets.len());
        let set = &self.sets[place];
        let matching = (0..WAYS).find(|&way| set.tags[way] == tag && set.slots[way].is_some());
        let known = matching.filter(|&way| set.slots[way].as_ref().is_some_and(|entry| entry.is(key, stamp)));
        if let Some(way) = known {
            self.hits = self.hits.wrapping_add(1);
            if self.hits.is_multiple_of(TOUCH_EVERY)
                && let Some(entries) = &self.cache.entries
            {
                let _ = entries.get(&hash);
            }
            return Ok((self.sets[place].slots[way].as_ref().expect("known"), Source::Cache));
        }
        let (entry, source) = self.cache.shared((key, hash), stamp, read)?;
        if entry.text().len() > LOCAL_TEXT_BYTES {
            return Ok((self.other.insert(entry), source));
        }
        let slots = &self.sets[place].slots;
        let way = match matching.or_else(|| slots.iter().position(Option::is_none)) {
            Some(way) => way,
            None if self.sets.len() < MOST_SETS => {
                // The shared cache still has what is dropped here.
                self.sets = empty((self.sets.len() * GROWTH).min(MOST_SETS));
                0
            }
            None => {
                self.victim = self.victim.wrapping_add(1);
                usize::from(self.victim) % WAYS
            }
        };
        let set = &mut self.sets[index(self.sets.len())];
        set.tags[way] = tag;
        Ok((set.slots[way].insert(entry), source))
    }
}

/// This many sets, a power of two or none.
fn empty(sets: usize) -> Box<[Set]> {
    (0..sets).map(|_| Set::default()).collect()
}
