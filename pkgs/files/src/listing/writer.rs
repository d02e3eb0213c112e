//! Writes the entries of a directory in order, as a page or as JSON, however many there are.
//!
//! A listing is written block by block, each once the client has taken the one before. In between it occupies no thread
//! (see [`crate::stream::pool`]). It holds [`SMALL_BYTES`] of names, or as much more as [`NameMemory`] grants: a larger
//! directory is read repeatedly, with each pass collecting the names that come next in order. Other data about an entry
//! is looked up when the entry is written.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use std::vec;

use rustix::fs::{AtFlags, Dir, FileType, StatxFlags, statx};

use super::render;
use super::request::{EntryInfo, ListingRequest};
use crate::http::listing_query::SortKey;
use crate::site::Site;
use crate::site::root::LookupMode;
use crate::stream::source::{BlockSource, Error, NameMemory, SCARCE_FOR, Step, chunk};
use crate::threads::health;

/// How much memory a directory's names may take without asking for more, in bytes: about 500 names.
pub const SMALL_BYTES: usize = 32 << 10;

/// The memory that a name takes besides its bytes: the struct, and the allocator's rounding.
const NAME_BYTES: usize = size_of::<Ranked>() + 16;

/// A block is passed on once it has this many bytes.
pub const BLOCK_BYTES: usize = 16 * 1024;

/// A name, with what it is sorted by first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranked {
    rank: i64,
    name: CString,
}

impl Ranked {
    fn key(&self) -> (i64, &[u8]) {
        (self.rank, self.name.as_bytes())
    }
}

/// A listing being written.
#[derive(Debug)]
pub struct ListingWriter {
    site: Arc<Site>,
    request: ListingRequest,
    directory: Option<OwnedFd>,
    text: String,
    phase: Phase,
    /// The name that was written last, after which it continues.
    last: Option<Ranked>,
    /// Whether no entry has been written.
    empty: bool,
    /// How much memory names may take without asking for more, in bytes.
    small: usize,
    /// Whether they take more.
    large: bool,
    /// Until when it waits for a file descriptor, if there was none.
    scarce_until: Option<Instant>,
}

#[derive(Debug)]
enum Phase {
    /// Reads the directory next, for the names after the last one.
    Read,
    /// Writes these names and then, unless they are all, reads the directory again.
    Write { names: vec::IntoIter<Ranked>, whole: bool },
    /// Everything has been written.
    End,
}

impl ListingWriter {
    /// A listing that hasn't begun.
    pub fn new(site: Arc<Site>, request: ListingRequest) -> Self {
        let (directory, last, text) = (None, None, String::new());
        Self {
            site,
            request,
            directory,
            text,
            phase: Phase::Read,
            last,
            empty: true,
            small: SMALL_BYTES,
            large: false,
            scarce_until: None,
        }
    }

    fn write(&mut self, memory: &mut dyn NameMemory) -> Result<Step, Error> {
        loop {
            if self.directory.is_none() {
                self.directory = Some(self.site.root.directory(&self.request.path, LookupMode::MayBlock)?);
                render::open(&self.request, &mut self.text);
            }
            let Some(directory) = &self.directory else { continue };
            match &mut self.phase {
                Phase::Read => {
                    #[cfg(test)]
                    crate::faults::strike(crate::faults::LISTING, &self.request.path);
                    let mut most = Most { bytes: self.small, grown: false };
                    // Known to be large: without memory, reading the directory would be in vain.
                    if self.large && !most.grow(memory) {
                        return Ok(Step::Wait);
                    }
                    let read = next(most, memory, &self.request, directory, self.last.as_ref())?;
                    let Some((names, whole)) = read else {
                        self.large = true;
                        return Ok(Step::Wait);
                    };
                    memory.fits(bytes_of(&names));
                    self.phase = Phase::Write { names: names.into_iter(), whole };
                }
                Phase::Write { names, whole } => {
                    for ranked in names {
                        health::progressed();
                        // Entries that have disappeared in the meantime are left out.
                        if let Some(about) = look(directory, &ranked.name) {
                            let name = ranked.name.as_bytes();
                            render::row(&self.request, name, about, self.empty, &mut self.text);
                            self.empty = false;
                        }
                        self.last = Some(ranked);
                        if self.text.len() >= BLOCK_BYTES {
                            return Ok(Step::Block(self.block(false)));
                        }
                    }
                    self.phase = if *whole { Phase::End } else { Phase::Read };
                    memory.fits(0);
                    if matches!(self.phase, Phase::End) {
                        self.text.push_str(if self.request.json { "\n]\n" } else { "</table>\n" });
                        return Ok(Step::Block(self.block(true)));
                    }
                }
                Phase::End => return Ok(Step::End),
            }
        }
    }

    fn block(&mut self, end: bool) -> Vec<u8> {
        let block = std::mem::take(&mut self.text).into_bytes();
        if self.request.chunked { chunk(&block, end) } else { block }
    }
}

impl BlockSource for ListingWriter {
    fn step(&mut self, memory: &mut dyn NameMemory) -> Result<Step, Error> {
        match self.write(memory) {
            Err(error) if error.is_scarcity() => {
                memory.fits(0);
                let now = Instant::now();
                let until = *self.scarce_until.get_or_insert(now + SCARCE_FOR);
                if now < until { Ok(Step::Wait) } else { Err(error) }
            }
            step => {
                self.scarce_until = None;
                step
            }
        }
    }

    /// Drops the names that have yet to be written, which are then read again.
    fn release_memory(&mut self) {
        if matches!(self.phase, Phase::Write { .. }) {
            self.phase = Phase::Read;
        }
    }

    fn path(&self) -> &[u8] {
        &self.request.path
    }
}

/// How many bytes the names of a pass may take, and whether memory has granted more.
struct Most {
    bytes: usize,
    grown: bool,
}

impl Most {
    /// Takes more memory, and returns whether there was some.
    fn grow(&mut self, memory: &mut dyn NameMemory) -> bool {
        let granted = memory.grow();
        (self.bytes, self.grown) = (granted.unwrap_or(self.bytes), granted.is_some());
        self.grown
    }
}

/// The names that follow `last` in order, and whether these are all of them. They take up to `most` bytes, or as much
/// as `memory` grants if that is too little. None if `memory` granted nothing.
fn next(
    mut most: Most,
    memory: &mut dyn NameMemory,
    request: &ListingRequest,
    directory: impl AsFd,
    last: Option<&Ranked>,
) -> Result<Option<(Vec<Ranked>, bool)>, Error> {
    let order = request.order;
    let mut names: Vec<Ranked> = Vec::new();
    let mut bytes = 0;
    // The first of the names left to later passes.
    let mut later: Option<Ranked> = None;
    for found in Dir::read_from(&directory)? {
        health::progressed();
        let found = found?;
        let name = found.file_name();
        let hidden = !request.hidden && name.to_bytes().starts_with(b".");
        if hidden || name == c"." || name == c".." {
            continue;
        }
        let rank = match (order.key, found.file_type()) {
            (SortKey::Name, FileType::Directory | FileType::RegularFile | FileType::Unknown) => 0,
            (SortKey::Name, _) => continue,
            (key, _) => match look(&directory, name) {
                Some(about) if key == SortKey::Size => i64::try_from(about.size).unwrap_or(i64::MAX),
                Some(about) => about.modified,
                None => continue,
            },
        };
        let compare = |other: &Ranked| order.compare((rank, name.to_bytes()), other.key());
        if last.is_some_and(|last| compare(last).is_le())
            || later.as_ref().is_some_and(|at| compare(at).is_ge())
        {
            continue;
        }
        bytes += NAME_BYTES + name.count_bytes();
        names.push(Ranked { rank, name: name.to_owned() });
        if bytes > most.bytes && !most.grown && !most.grow(memory) {
            return Ok(None);
        }
        if bytes > most.bytes && names.len() > 1 {
            let half = names.len() / 2;
            names.select_nth_unstable_by(half, |a, b| order.compare(a.key(), b.key()));
            names.truncate(half + 1);
            later = names.pop();
            bytes = bytes_of(&names);
        }
    }
    names.sort_unstable_by(|a, b| order.compare(a.key(), b.key()));
    Ok(Some((names, later.is_none())))
}

fn bytes_of(names: &[Ranked]) -> usize {
    names.iter().map(|ranked| NAME_BYTES + ranked.name.count_bytes()).sum()
}

/// What is shown about a file or a directory. Links aren't followed, since they may lead out of the site.
fn look(directory: impl AsFd, name: &CStr) -> Option<EntryInfo> {
    let stat = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).ok()?;
    let directory = match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return None,
    };
    let size = if directory { 0 } else { stat.stx_size };
    Some(EntryInfo { directory, size, modified: stat.stx_mtime.tv_sec })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::http::listing_query::ListingQuery;
    use crate::threads::health::tests::is_progress;

    fn place(names: &[&str]) -> tempfile::TempDir {
        place_of(names.iter().copied(), |number| "x".repeat(100 - number))
    }

    pub fn place_of<'n>(
        names: impl Iterator<Item = &'n str>,
        text: impl Fn(usize) -> String,
    ) -> tempfile::TempDir {
        let place = tempfile::tempdir().expect("a directory");
        for (number, name) in names.enumerate() {
            fs::write(place.path().join(name), text(number)).expect("a file");
        }
        place
    }

    fn list(kept: usize, query: &str, place: &tempfile::TempDir) -> String {
        let order = ListingQuery::parse(query).expect("a query");
        let request = ListingRequest {
            path: Vec::new(),
            order,
            json: order.json.unwrap_or(false),
            hidden: false,
            chunked: false,
        };
        let kept = kept * (NAME_BYTES + 3);
        let mut writer =
            ListingWriter { small: kept, ..ListingWriter::new(Arc::new(site(place.path())), request) };
        let (mut all, mut forget) = (Vec::new(), false);
        loop {
            match writer.step(&mut Granted(Some(kept), Vec::new())).expect("a listing") {
                Step::Block(block) => all.extend_from_slice(&block),
                Step::End => return String::from_utf8(all).expect("text"),
                Step::Wait | Step::Again => panic!("there is memory"),
            }
            // Releases the memory every second time, as if memory were scarce.
            forget = !forget;
            if forget {
                writer.release_memory();
            }
        }
    }

    pub fn site(root: &std::path::Path) -> Site {
        Site::load(&crate::site::Options {
            origin: None,
            root: root.to_owned(),
            rules: None,
            symlinks: crate::site::root::Symlinks::Beneath,
            hidden: false,
            listing: true,
            precompressed: false,
            charset: String::new(),
        })
        .expect("a site")
    }

    #[test]
    fn a_listing_waits_for_memory_and_goes_on() {
        let all: Vec<String> = (0..2000).map(|n| format!("{n:04}")).collect();
        let place = place_of(all.iter().map(String::as_str), |_| String::new());
        let order = ListingQuery { json: Some(true), ..ListingQuery::default() };
        let request = ListingRequest { path: Vec::new(), order, json: true, hidden: false, chunked: false };
        let mut writer = ListingWriter::new(Arc::new(site(place.path())), request);
        assert_eq!(writer.step(&mut Granted(None, Vec::new())), Ok(Step::Wait));
        let mut memory = Granted(Some(64 << 10), Vec::new());
        let mut text = Vec::new();
        while let Step::Block(block) = writer.step(&mut memory).expect("a listing") {
            text.extend(block);
        }
        let kept = memory.1;
        assert_eq!(names(&String::from_utf8(text).unwrap()), all);
        assert!(kept.len() > 2 && kept.iter().all(|kept| *kept <= 64 << 10), "{kept:?}");
        assert_eq!(kept.last(), Some(&0));
    }

    /// Grants this many bytes, and records what is used.
    struct Granted(Option<usize>, Vec<usize>);

    impl NameMemory for Granted {
        fn grow(&mut self) -> Option<usize> {
            self.0
        }

        fn fits(&mut self, bytes: usize) {
            self.1.push(bytes);
        }
    }

    fn names(json: &str) -> Vec<String> {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        all.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn entries_come_in_order_however_few_are_kept() {
        let all: Vec<String> = (0..50).map(|n| format!("f{:02}", n * 37 % 50)).collect();
        let place = place(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let mut by_name = all.clone();
        by_name.sort();
        let mut by_size = all.clone();
        by_size.reverse();
        for kept in [1, 7, 49, 50, 51, 1000] {
            assert_eq!(names(&list(kept, "format=json", &place)), by_name, "{kept} kept");
            assert_eq!(names(&list(kept, "format=json&sort=size", &place)), by_size, "{kept} kept");
            assert_eq!(names(&list(kept, "format=json&sort=size&order=desc", &place)), all, "{kept} kept");
            let backwards: Vec<_> = by_name.iter().rev().cloned().collect();
            assert_eq!(names(&list(kept, "format=json&order=desc", &place)), backwards, "{kept} kept");
        }
    }

    #[test]
    fn each_entry_that_is_read_or_written_is_progress() {
        let empty = place(&[]);
        assert!(is_progress(|| drop(list(10, "format=json", &empty))), "the directory and its parent");
        let all: Vec<String> = (0..600).map(|n| format!("{n:04}")).collect();
        let place = place_of(all.iter().map(String::as_str), |_| String::new());
        let order = ListingQuery::default();
        let request = ListingRequest { path: Vec::new(), order, json: true, hidden: false, chunked: false };
        let mut writer = ListingWriter::new(Arc::new(site(place.path())), request);
        let mut step = || assert!(matches!(writer.step(&mut Granted(None, Vec::new())), Ok(Step::Block(_))));
        step();
        assert!(is_progress(step), "more of what has been read");
    }

    #[test]
    fn names_are_escaped() {
        let place = place(&["a<b>\"&.txt", "c d%", ".hidden"]);
        fs::create_dir(place.path().join("dir")).expect("a directory");
        let page = list(100, "", &place);
        assert!(
            page.contains("<a href=\"a%3Cb%3E%22%26.txt\">a&lt;b&gt;&quot;&amp;.txt</a><td>100<td>"),
            "{page}"
        );
        assert!(page.contains("<a href=\"c%20d%25\">c d%</a>"), "{page}");
        assert!(page.contains("<a href=\"dir/\">dir/</a>"), "{page}");
        assert!(!page.contains("hidden"), "{page}");
        assert_eq!(names(&list(100, "format=json", &place)), ["a<b>\"&.txt", "c d%", "dir"]);
    }

    #[test]
    fn an_empty_directory_is_an_empty_listing() {
        let place = place(&[]);
        assert!(names(&list(10, "format=json", &place)).is_empty());
        assert!(list(10, "", &place).ends_with("</table>\n"));
    }

    #[test]
    fn queries_are_known_or_refused() {
        let order = |key, descending, json| Some(ListingQuery { key, descending, json });
        for (query, expected) in [
            ("", Some(ListingQuery::default())),
            ("&", Some(ListingQuery::default())),
            ("sort=time", order(SortKey::Time, false, None)),
            ("sort=-time", order(SortKey::Time, true, None)),
            ("sort=time&order=desc", order(SortKey::Time, true, None)),
            ("sort=-size&order=desc&format=json", order(SortKey::Size, true, Some(true))),
            ("sort=-name&order=asc", order(SortKey::Name, false, None)),
            ("order=asc&format=html", order(SortKey::Name, false, Some(false))),
            ("sort=colour", None),
            ("sort=--name", None),
            ("sort=", None),
            ("sort", None),
            ("order=up", None),
            ("format=csv", None),
            ("x=y", None),
            ("Sort=name", None),
        ] {
            assert_eq!(ListingQuery::parse(query), expected, "{query}");
        }
    }
}
