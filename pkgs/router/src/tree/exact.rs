//! Finds routes without parameters by a single look-up of the whole path.
//!
//! Such a route precedes every other route for its path, since the static segment is tried first everywhere. So a path
//! that is found here need not be searched in the tree.

use super::bytes;

/// A tree with more static routes has no such table. A table of this many routes fits a second-level cache.
const MAX_ROUTES: usize = 4096;

/// The most places that a look-up reads.
const PROBES: usize = 2;

/// How many seeds are tried before the table is enlarged.
const SEEDS: u64 = 16;

/// How many times the table may be doubled. At first it has places for twice the routes.
const SPARE_BITS: u32 = 2;

/// Static routes, by whole path.
#[derive(Debug)]
pub(super) struct Exact {
    places: Box<[Place]>,
    text: Box<[u8]>,
    seed: u64,
    /// A hash shifted right by this is the index of its first place.
    shift: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: u32,
    /// The path's length in bytes; zero in a free place.
    length: u32,
    value: u32,
}

impl Exact {
    /// A table of these paths and their values. `None` if there are no paths or too many, or if no seed gives each path
    /// a place.
    pub(super) fn new(routes: &[(Vec<u8>, u32)]) -> Option<Self> {
        if routes.is_empty() || routes.len() > MAX_ROUTES {
            return None;
        }
        let bits = (routes.len() * 2).next_power_of_two().trailing_zeros();
        let (places, seed, bits) = (bits..=bits + SPARE_BITS)
            .flat_map(|bits| (0..SEEDS).map(move |seed| (bits, seed)))
            .find_map(|(bits, seed)| Some((fill(routes, seed, bits)?, seed, bits)))?;
        let text = routes.iter().flat_map(|(path, _)| path).copied().collect();
        Some(Self { places: places.into(), text, seed, shift: u64::BITS - bits })
    }

    /// The value of the route that equals `path`.
    #[inline(always)]
    pub(super) fn find(&self, path: &[u8]) -> Option<u32> {
        let first = (bytes::digest(path, self.seed) >> self.shift) as usize;
        // A loop, since the compiler calls a closure here for each place.
        for place in &self.places[first..first + PROBES] {
            let (start, length) = (place.start as usize, place.length as usize);
            if length == path.len() && bytes::equal(path, &self.text[start..start + length]) {
                return Some(place.value);
            }
        }
        None
    }
}

/// The places when this seed is used. `None` if all places that a path's look-up would read are taken.
fn fill(routes: &[(Vec<u8>, u32)], seed: u64, bits: u32) -> Option<Vec<Place>> {
    let mut places = vec![Place::default(); (1 << bits) + PROBES - 1];
    let mut start = 0;
    for (path, value) in routes {
        let first = (bytes::digest(path, seed) >> (u64::BITS - bits)) as usize;
        let free = places[first..first + PROBES].iter_mut().find(|place| place.length == 0)?;
        *free = Place { start, length: path.len() as u32, value: *value };
        start += path.len() as u32;
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paths: impl IntoIterator<Item = String>) -> Option<Exact> {
        let routes: Vec<_> = (0..).zip(paths).map(|(value, path)| (path.into_bytes(), value)).collect();
        Exact::new(&routes)
    }

    #[test]
    fn each_path_is_found_and_no_other() {
        for count in [1, 2, 3, 10, 100, 1_000] {
            let path = |n: usize| format!("/{}/{n}", "segment".repeat(n % 7));
            let exact = table((0..count).map(path)).expect("paths that differ at their ends");
            for n in 0..count {
                assert_eq!(exact.find(path(n).as_bytes()), Some(n as u32), "{n} of {count}");
                assert_eq!(exact.find(path(n + count).as_bytes()), None, "{n} of {count}");
                assert_eq!(exact.find(&path(n).as_bytes()[1..]), None, "{n} of {count}");
            }
            assert_eq!(exact.find(b"/"), None);
        }
    }

    #[test]
    fn paths_that_end_alike_are_left_to_the_tree() {
        assert!(table((0..100).map(|n| format!("/{n:04}/the same sixteen bytes and more"))).is_none());
        assert!(table((0..=MAX_ROUTES).map(|n| format!("/{n}"))).is_none());
        assert!(table([]).is_none());
    }
}
