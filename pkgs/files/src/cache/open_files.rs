//! Files that a worker keeps open with their heads, so that a hot file costs no lookup.
//!
//! Their number is limited; the clock algorithm drops those that were not requested lately. If all places are taken, a
//! file gets one only when it is looked up again soon: many files are requested once, and each would displace another
//! one. An entry is looked up again after a while, and at once if inotify reports a change of its directory. If it is
//! still the same file, it keeps its heads.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use foldhash::fast::RandomState;

use super::file::OpenFile;
use super::memory_budget::MemoryBudget;
use super::plain_directories::PlainDirectories;
use super::watch::{WatchStamp, Watcher};
use crate::http::encoding::Coding;
use crate::http::media_type::{is_text, media_type};
use crate::site::Site;
use crate::site::origin_file::OriginFile;
use crate::site::root::{DirectoryHint, Found, INDEX, OpenedFile, names_directory};
use crate::site::rules::Policy;
use crate::variants::Variant;

/// For each place in the cache, how many look-ups of files without a place are remembered.
const REMEMBERED: usize = 4;

/// What a path names, and the rules for it.
#[derive(Debug)]
pub struct CacheEntry {
    /// What the path names.
    pub kind: EntryKind,
    /// The rules for it.
    pub policy: Rc<Policy>,
    /// Whether the rules may answer with something else.
    pub is_routed: bool,
    /// Encodings that were made from it, in the order of [`Coding::ALL`]; none if none are to be made.
    pub made: Option<Rc<[RefCell<Made>; Coding::ALL.len()]>>,
    /// The tick from which it has to be looked up again.
    stale_from: Cell<u32>,
    stamp: Option<WatchStamp>,
}

/// An encoding that was made from a file, and the encoding as an open file, if it was found.
pub type Made = Option<(Arc<Variant>, Rc<OpenFile>)>;

/// What a path names.
#[derive(Clone, Debug)]
pub enum EntryKind {
    /// A file, and its encodings in the order of [`Coding::ALL`].
    File(Rc<OpenFile>, [Option<Rc<OpenFile>>; Coding::ALL.len()]),
    /// A directory whose path lacks the final slash.
    Directory,
    /// A directory without an index, with its path below the root, which need not be the requested one.
    Listing(Box<[u8]>),
}

impl EntryKind {
    /// Whether `found` is the same kind of thing.
    fn is_like(&self, found: &Found) -> bool {
        matches!(
            (self, found),
            (Self::File(..), Found::File(_))
                | (Self::Directory, Found::Directory)
                | (Self::Listing(_), Found::Listing(_))
        )
    }

    fn files(&self) -> impl Iterator<Item = &Rc<OpenFile>> {
        let (plain, coded) = match self {
            Self::File(plain, coded) => (Some(plain), coded.as_slice()),
            Self::Directory | Self::Listing(_) => (None, &[][..]),
        };
        plain.into_iter().chain(coded.iter().flatten())
    }
}

/// A worker's entries.
#[derive(Debug)]
pub struct OpenFileCache {
    /// The slots of the first site's paths.
    places: Places,
    /// The same for the other sites.
    others: Vec<Places>,
    slots: Vec<Slot>,
    hand: usize,
    capacity: usize,
    /// How long an entry is valid, in ticks.
    fresh_for: u32,
    /// The longest file whose bytes are kept in memory.
    memory_max: u64,
    /// The memory for small files' bytes.
    memory: MemoryBudget,
    /// Of each file that was looked up and got no place, a part of its path's hash, until another's is here instead.
    passed: Box<[u32]>,
    /// The policies of all paths of sites without rules: for sites that list no directories, and for those that do.
    unruled: [Option<Rc<Policy>>; 2],
    /// The watcher, and what depends on it.
    watched: Option<(Watcher, PlainDirectories)>,
}

type Places = HashMap<Box<[u8]>, usize, RandomState>;

#[derive(Debug)]
struct Slot {
    site: usize,
    path: Box<[u8]>,
    entry: Rc<CacheEntry>,
    used: Cell<bool>,
}

impl OpenFileCache {
    /// An empty cache of `capacity` entries and `memory` bytes of small files, which have up to `memory_max` each.
    pub fn new(
        capacity: usize,
        fresh_for: u32,
        (memory, memory_max): (usize, u64),
        watched: Option<(Watcher, PlainDirectories)>,
    ) -> Self {
        Self {
            places: HashMap::default(),
            others: Vec::new(),
            slots: Vec::new(),
            hand: 0,
            capacity: capacity.max(1),
            fresh_for,
            memory_max,
            memory: MemoryBudget::new(memory),
            passed: Box::default(),
            unruled: [None, None],
            watched,
        }
    }

    /// The entry of a path, if it is recent.
    pub fn get(&self, site: &Site, path: &[u8], tick: u32) -> Option<&Rc<CacheEntry>> {
        let slot = &self.slots[self.place(site.number, path)?];
        slot.used.set(true);
        let fresh =
            slot.entry.stale_from.get() > tick && slot.entry.stamp.as_ref().is_none_or(WatchStamp::is_fresh);
        fresh.then_some(&slot.entry)
    }

    /// The entry of a path, however old it is.
    pub fn last(&self, site: &Site, path: &[u8]) -> Option<&Rc<CacheEntry>> {
        Some(&self.slots[self.place(site.number, path)?].entry)
    }

    /// What is known about the directory of a file.
    pub fn hint_of(&self, site: &Site, path: &[u8], tick: u32) -> DirectoryHint {
        let watched = self.watched.as_ref();
        watched.map_or(DirectoryHint::Unknown, |(_, plain)| plain.hint(site.number, path, tick))
    }

    fn place(&self, site: usize, path: &[u8]) -> Option<usize> {
        let places = if site == 0 { &self.places } else { self.others.get(site - 1)? };
        places.get(path).copied()
    }

    fn places(&mut self, site: usize) -> &mut Places {
        if site == 0 {
            return &mut self.places;
        }
        if self.others.len() < site {
            self.others.resize_with(site, Places::default);
        }
        &mut self.others[site - 1]
    }

    /// Returns the entry of what a path names now, and inserts it if it gets a place. The current time is given in
    /// ticks and as a time.
    pub fn insert(
        &mut self,
        site: &Site,
        path: &[u8],
        found: Found,
        (tick, now): (u32, SystemTime),
    ) -> Rc<CacheEntry> {
        let stale_from = Cell::new(tick.saturating_add(self.fresh_for));
        let place = self.place(site.number, path);
        let known = place.map(|place| Rc::clone(&self.slots[place].entry));
        // Rules apply to the file that is sent: a directory's index, or the directory itself if it is listed.
        let sent: Cow<'_, [u8]> = match found {
            Found::File(_) if names_directory(path) => [path, INDEX.as_bytes()].concat().into(),
            Found::Directory => [path, b"/"].concat().into(),
            Found::File(_) | Found::Listing(_) => path.into(),
        };
        let policy = match known.as_ref().filter(|known| known.kind.is_like(&found)) {
            Some(known) => Rc::clone(&known.policy),
            None => self.policy_of(site, path, &sent),
        };
        let is_kept = place.is_some() || self.is_to_be_kept(site, path, &found, &policy);
        // Watched before it is compared, so that no change is missed.
        let watched = self.watched.as_mut().filter(|_| site.origin.is_none());
        let stamp = watched.and_then(|(watcher, plain)| {
            // Opening the directory once per half of the time that its path is believed is enough.
            if let Found::File(files) = &found
                && files[1..].iter().all(Option::is_none)
                && let Some(stamp) = plain.stamp(site.number, path, tick, self.fresh_for / 2)
            {
                return Some(stamp.clone());
            }
            // What is not kept needs no stamp, but what is known of its directory has to be renewed.
            if !is_kept && !plain.follows(site.number, path) {
                return None;
            }
            let place = site.root.place_of(path).ok()?;
            let stamp = watcher.stamp(&place)?;
            if let Found::File(files) = &found {
                let has_codings = files[1..].iter().any(Option::is_some);
                plain.note((site.number, path), has_codings, &stamp, place, stale_from.get());
            }
            Some(stamp)
        });
        let (kind, made) = match found {
            Found::Directory => (EntryKind::Directory, None),
            Found::Listing(_) => (EntryKind::Listing(path.into()), None),
            Found::File(files) => match known.as_ref().filter(|known| is_same(&known.kind, &files)) {
                Some(known) => (known.kind.clone(), known.made.clone()),
                None => files_of(*files, &sent, &policy, &site.charset, now),
            },
        };
        // If this is not a file, another path may be tried next.
        let is_routed =
            site.routes() && !(matches!(kind, EntryKind::File(..)) && site.route(path, None).is_direct(path));
        let entry = Rc::new(CacheEntry { kind, policy, is_routed, made, stale_from, stamp });
        match place {
            Some(place) => self.slots[place].entry = Rc::clone(&entry),
            None if is_kept => self.add(site.number, path, Rc::clone(&entry)),
            None => {}
        }
        entry
    }

    /// The combined rules for what is sent for a path.
    fn policy_of(&mut self, site: &Site, path: &[u8], sent: &[u8]) -> Rc<Policy> {
        let policy = || Rc::new(site.policy_of(path, sent));
        match site.lists_without_rules() {
            Some(listing) => Rc::clone(self.unruled[usize::from(listing)].get_or_insert_with(policy)),
            None => policy(),
        }
    }

    /// Whether what was found at a path without a place gets one. If that takes the place of another, a file has to
    /// have been looked up before, and not so long ago that many others were since.
    fn is_to_be_kept(&mut self, site: &Site, path: &[u8], found: &Found, policy: &Policy) -> bool {
        let Found::File(files) = found else { return true };
        // An archive of a directory is made by what was found for its plan.
        if names_directory(path) {
            return true;
        }
        // What is kept of small files, and of those that are compressed, is dropped with their places.
        let keeps = |file: &OpenedFile| {
            let size = file.identity.size;
            size <= self.memory_max || policy.compressed.as_ref().is_some_and(|sizes| sizes.contains(&size))
        };
        if self.slots.len() < self.capacity || site.origin.is_some() || files.iter().flatten().any(keeps) {
            return true;
        }
        if self.passed.is_empty() {
            self.passed = vec![0; self.capacity.saturating_mul(REMEMBERED)].into();
        }
        let hash = self.places.hasher().hash_one((site.number, path));
        let index = hash as usize % self.passed.len();
        let print = (hash >> 32) as u32 | 1;
        std::mem::replace(&mut self.passed[index], print) == print
    }

    fn add(&mut self, site: usize, path: &[u8], entry: Rc<CacheEntry>) {
        let slot = Slot { site, path: path.into(), entry, used: Cell::new(false) };
        let place = if self.slots.len() < self.capacity {
            self.slots.push(slot);
            #[cfg(test)]
            crate::faults::strike(crate::faults::CACHE, path);
            self.slots.len() - 1
        } else {
            let place = self.oldest();
            let old = std::mem::replace(&mut self.slots[place], slot);
            self.places(old.site).remove(&old.path);
            place
        };
        self.places(site).insert(path.into(), place);
    }

    /// The first entry after the hand that was not requested since the hand last passed it.
    fn oldest(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            if !self.slots[place].used.replace(false) {
                return place;
            }
        }
    }

    /// Removes the entry of a path.
    pub fn forget(&mut self, path: &[u8]) {
        if let Some(place) = self.places.get(path) {
            self.slots[*place].entry.stale_from.set(0);
        }
    }

    /// Closes all files that are not being sent.
    pub fn clear(&mut self) {
        self.places.clear();
        self.others.clear();
        self.slots.clear();
        self.hand = 0;
        self.forget_directories();
    }

    /// Removes everything. Relies on none of the old state.
    pub fn reset(&mut self) {
        (self.places, self.others, self.slots) = Default::default();
        self.hand = 0;
        self.forget_directories();
    }

    fn forget_directories(&mut self) {
        if let Some((_, plain)) = &mut self.watched {
            plain.clear();
        }
    }

    /// Removes encodings that were dropped, to free their memory.
    pub fn forget_made(&mut self) {
        for made in self.slots.iter().filter_map(|slot| slot.entry.made.as_deref()).flatten() {
            made.borrow_mut().take_if(|(variant, _)| variant.was_evicted());
        }
    }

    /// Closes files of an origin that were evicted from its cache, to free their space.
    pub fn close_evicted(&mut self) {
        for place in (0..self.slots.len()).rev() {
            let is_evicted = |file: &Rc<OpenFile>| file.origin().is_some_and(OriginFile::is_evicted);
            if !self.slots[place].entry.kind.files().any(is_evicted) {
                continue;
            }
            let gone = self.slots.swap_remove(place);
            self.places(gone.site).remove(&gone.path);
            if let Some(Slot { site, path, .. }) = self.slots.get(place) {
                let (site, path) = (*site, path.clone());
                self.places(site).insert(path, place);
            }
        }
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
    }

    /// Keeps a small file's bytes in memory, if there is room.
    pub fn keep_bytes(&self, file: &OpenFile, now: SystemTime) {
        file.keep_bytes(now, &self.memory);
    }

    /// Processes changes below the root.
    pub fn watched(&mut self) {
        if let Some((watcher, _)) = &mut self.watched {
            watcher.read();
        }
    }

    /// Signals when [`watched`](Self::watched) has work.
    pub fn watcher(&self) -> Option<&Watcher> {
        self.watched.as_ref().map(|(watcher, _)| watcher)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Whether these are the files that are already open, unchanged.
fn is_same(kind: &EntryKind, found: &[Option<OpenedFile>; 1 + Coding::ALL.len()]) -> bool {
    let EntryKind::File(plain, coded) = kind else { return false };
    let open = std::iter::once(Some(plain)).chain(coded.iter().map(Option::as_ref));
    open.zip(found).all(|(open, found)| match (open, found) {
        (None, None) => true,
        (Some(open), Some(found)) => match (open.origin(), &found.origin) {
            // An incomplete file changes with each block.
            (Some(open), Some(found)) => open.is_same(found),
            (None, None) => open.identity == found.identity,
            _ => false,
        },
        _ => false,
    })
}

fn files_of(
    files: [Option<OpenedFile>; 1 + Coding::ALL.len()],
    path: &[u8],
    policy: &Policy,
    charset: &str,
    now: SystemTime,
) -> (EntryKind, Option<Rc<[RefCell<Made>; Coding::ALL.len()]>>) {
    let [plain, coded @ ..] = files;
    let plain = plain.expect("a file that was found is open");
    let size = plain.identity.size;
    let is_coded = plain
        .origin
        .as_ref()
        .is_some_and(|origin| origin.metadata().fields.iter().any(|(name, _)| name == "content-encoding"));
    let is_made_of = policy.compressed.as_ref().is_some_and(|sizes| sizes.contains(&size))
        && !is_coded
        && is_text(&media_type(path, charset));
    let varies = is_made_of || coded.iter().any(Option::is_some);
    // An encoding is made from a complete file.
    let is_whole = plain.origin.as_ref().is_none_or(OriginFile::is_whole);
    let file = |opened, coded| Rc::new(OpenFile::new(opened, path, coded, varies, policy, charset, now));
    let plain = file(plain, None);
    let metadata = plain.origin().map(OriginFile::metadata);
    let mut codings = Coding::ALL.into_iter();
    let coded = coded.map(|opened| {
        let coding = codings.next()?;
        opened.map(|opened| file(opened, Some((coding, metadata))))
    });
    (EntryKind::File(plain, coded), (is_made_of && is_whole).then(Rc::default))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::disk::threads::DiskThreads;
    use crate::site::Options;
    use crate::site::root::{LookupMode, Symlinks};
    use crate::variants::tests::{evict, variant_of};
    use crate::worker::shared::tests::load;

    #[test]
    fn a_small_file_gives_its_memory_back_whatever_its_path_names_next() {
        let test = "a_small_file_gives_its_memory_back_whatever_its_path_names_next";
        // On a disk, since tmpfs reads nothing for those who don't wait.
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let named = place.path().join("a");
        let site = load(place.path(), None);
        // Long after the files have changed.
        let time = (1, SystemTime::now() + Duration::from_secs(60));
        for next in ["another file", "a directory"] {
            let mut cache = OpenFileCache::new(4, 1, (100, 100), None);
            let look = |cache: &mut OpenFileCache| {
                let found =
                    site.find(b"a", LookupMode::MayBlock, DirectoryHint::Unknown).expect("it is there");
                let entry = cache.insert(&site, b"a", found, time);
                entry.kind.files().for_each(|file| cache.keep_bytes(file, time.1));
                cache.memory.left()
            };
            std::fs::write(&named, "text").expect("a file");
            if look(&mut cache) == 100 {
                return bench::skipped(test, "this file system reads nothing for those who don't wait");
            }
            assert_eq!((look(&mut cache), look(&mut cache)), (96, 96), "{next}");
            std::fs::remove_file(&named).expect("it was there");
            let left = match next {
                "another file" => std::fs::write(&named, "longer text").map(|()| 89),
                _ => std::fs::create_dir(&named).map(|()| 100),
            };
            assert_eq!(look(&mut cache), left.expect("it is made"), "{next}");
            if next == "another file" {
                std::fs::remove_file(&named).expect("it was there");
            }
        }
    }

    #[test]
    fn an_encoding_that_was_made_gives_its_memory_back_however_it_goes() {
        let test = "an_encoding_that_was_made_gives_its_memory_back_however_it_goes";
        // As above.
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let rules = place.path().join("rules.toml");
        std::fs::write(&rules, "[[rule]]\npath = '*'\ncompress = true\n").expect("rules");
        for (name, text) in
            [("a.txt", "text ".repeat(1000)), ("other", "text".into()), ("coded", "text".into())]
        {
            std::fs::write(place.path().join(name), text).expect("a file");
        }
        let site = load(place.path(), Some(rules));
        let time = (1, SystemTime::now() + Duration::from_secs(60));
        let look_up = |cache: &mut OpenFileCache, path: &[u8]| {
            let found = site.find(path, LookupMode::MayBlock, DirectoryHint::Unknown).expect("it is there");
            cache.insert(&site, path, found, time)
        };
        for how in ["another takes its entry's place", "it is evicted", "all are closed"] {
            let mut cache = OpenFileCache::new(1, 1, (100, 100), None);
            let entry = look_up(&mut cache, b"a.txt");
            // For the cache, this is a file like any other.
            let coded = look_up(&mut OpenFileCache::new(1, 1, (0, 0), None), b"coded");
            let file = Rc::clone(coded.kind.files().next().expect("a file"));
            drop(coded);
            cache.keep_bytes(&file, time.1);
            if cache.memory.left() == 100 {
                return bench::skipped(test, "this file system reads nothing for those who don't wait");
            }
            assert_eq!(cache.memory.left(), 96, "{how}");
            let variant = variant_of(file.fd(), file.identity);
            let made = entry.made.as_ref().expect("texts are compressed");
            made[0].replace(Some((Arc::clone(&variant), file)));
            drop(entry);
            match how {
                "it is evicted" => {
                    evict(&variant);
                    cache.forget_made();
                }
                "all are closed" => cache.clear(),
                _ => drop(look_up(&mut cache, b"other")),
            }
            assert_eq!(cache.memory.left(), 100, "{how}");
        }
    }

    #[test]
    fn a_file_that_is_looked_up_once_takes_the_place_of_no_other() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join("d")).expect("a directory");
        for (name, size) in [("a", 101), ("b", 101), ("c", 101), ("d/e", 101), ("small", 100)] {
            std::fs::write(place.path().join(name), vec![b'x'; size]).expect("a file");
        }
        let site = load(place.path(), None);
        let plain = PlainDirectories::new(DiskThreads::start().expect("threads"));
        let watched = Watcher::new().map(|watcher| (watcher, plain));
        let mut cache = OpenFileCache::new(2, 10, (1000, 100), watched);
        let mut look_up = |path: &str| {
            let path = path.as_bytes();
            let found = site.find(path, LookupMode::MayBlock, DirectoryHint::Unknown).expect("a file");
            let entry = cache.insert(&site, path, found, (1, SystemTime::now()));
            (cache.get(&site, path, 1).is_some(), entry.stamp.is_some())
        };
        assert_eq!(["a", "b"].map(&mut look_up), [(true, true); 2], "there is room");
        assert_eq!(look_up("c"), (false, true), "its directory's state is known");
        assert_eq!(["a", "b"].map(&mut look_up), [(true, true); 2], "they have stayed");
        assert_eq!(look_up("c"), (true, true), "again");
        assert_eq!(look_up("d/e"), (false, false), "nobody needs its directory's state");
        assert_eq!(look_up("d/e"), (true, true), "again");
        assert_eq!(look_up("small"), (true, true), "its bytes are kept");
        assert_eq!(look_up("d"), (true, true), "a directory");
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn a_file_whose_size_is_compressed_gets_a_place_at_once_and_a_longer_one_does_not() {
        let place = tempfile::tempdir().expect("a directory");
        let rules = place.path().join("rules.toml");
        std::fs::write(&rules, "[[rule]]\npath = '*'\ncompress = true\n").expect("rules");
        for (name, size) in [("first", 2000), ("second", 2000), ("long", 5 << 20)] {
            let file = std::fs::File::create(place.path().join(name)).expect("a file");
            file.set_len(size).expect("a sparse file");
        }
        let site = load(place.path(), Some(rules));
        let mut cache = OpenFileCache::new(1, 10, (0, 0), None);
        let kept = ["first", "second", "long", "second"].map(|path| {
            let path = path.as_bytes();
            let found = site.find(path, LookupMode::MayBlock, DirectoryHint::Unknown).expect("a file");
            cache.insert(&site, path, found, (1, SystemTime::now()));
            cache.get(&site, path, 1).is_some()
        });
        assert_eq!(kept, [true, true, false, true]);
    }

    #[test]
    fn without_rules_all_paths_of_sites_that_list_alike_share_a_policy() {
        let place = tempfile::tempdir().expect("a directory");
        for name in ["a", "b"] {
            std::fs::write(place.path().join(name), "text").expect("a file");
        }
        let rules = place.path().join("rules.toml");
        std::fs::write(&rules, "[[rule]]\npath = '/a'\nlisting = false\n").expect("rules");
        let options = |listing, rules: Option<&std::path::Path>| Options {
            origin: None,
            root: place.path().to_owned(),
            rules: rules.map(Into::into),
            symlinks: Symlinks::Beneath,
            hidden: false,
            listing,
            precompressed: true,
            charset: String::new(),
        };
        let sites = [(false, None), (true, None), (true, Some(&*rules))];
        let sites = sites.map(|(listing, rules)| Site::load(&options(listing, rules)).expect("a site"));
        let mut cache = OpenFileCache::new(9, 10, (0, 0), None);
        let policies = sites.map(|site| {
            ["a", "b"].map(|path| {
                let path = path.as_bytes();
                let found = site.find(path, LookupMode::MayBlock, DirectoryHint::Unknown).expect("a file");
                cache.clear();
                Rc::clone(&cache.insert(&site, path, found, (1, SystemTime::now())).policy)
            })
        });
        assert_eq!(policies.each_ref().map(|[a, b]| Rc::ptr_eq(a, b)), [true, true, false]);
        let listing = policies.map(|[a, b]| (a.listing, b.listing));
        assert_eq!(listing, [(false, false), (true, true), (false, true)]);
    }
}
