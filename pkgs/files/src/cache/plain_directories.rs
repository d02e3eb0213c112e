//! Directories in which no file has an encoded version beside it, which saves three lookups for each of their files. If
//! they also have only files and directories, none has to be asked what it is before it is opened.
//!
//! If some files of a directory turn out to have none, a thread reads all its names once. From then on, inotify reports
//! each new name with an encoding's suffix. If others write to the directory over a network, its modification time
//! reveals that, which is read once per half of the time that a lookup is believed. After other new names, which may be
//! those of pipes and devices, the names are read again, but the more rarely the more there are.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use listener::ticks;
use rustix::fs::{Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use super::watch::WatchStamp;
use crate::disk::threads::DiskThreads;
use crate::http::encoding::is_of_coding;
use crate::site::root::DirectoryHint;

/// The most directories that a worker tracks.
const MOST: usize = 64;

/// How many files of a directory have to be without encodings before its names are read, which only pays for many
/// files.
const SEEN: u32 = 8;

/// The most names that are read in one directory.
const MOST_NAMES: u32 = 1 << 17;

/// The least time between two readings of a directory's names, since many new ones may come one after the other.
const READ_EVERY: Duration = Duration::from_secs(10);

/// For each so many names, a tick more: reading these takes less than a thousandth of one.
const NAMES_A_TICK: u32 = 256;

/// The result of a thread.
const UNREAD: u8 = 0;
/// No name is that of an encoding.
const PLAIN: u8 = 1;
/// Some are, or there are too many names.
const CODED: u8 = 2;
/// None is, and all are those of regular files and directories.
const ONLY_FILES: u8 = 3;

/// A worker's state.
#[derive(Debug)]
pub struct PlainDirectories {
    disk: DiskThreads,
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    site: usize,
    /// Its path as in requests, without a final slash.
    path: Box<[u8]>,
    /// Its state at the last check.
    stamp: WatchStamp,
    /// The tick until which the path is this directory.
    until: u32,
    /// How many of its files had no encodings.
    seen: u32,
    /// What its names are, once they are being read.
    names: Option<Names>,
}

/// What a directory's names are.
#[derive(Debug)]
struct Names {
    reading: Arc<Reading>,
    /// The directory's state before they were read.
    stamp: WatchStamp,
    /// When that began, in ticks, or up to the time later for which a lookup is believed.
    begun: u32,
}

/// What a thread has found by reading names.
#[derive(Debug)]
struct Reading {
    found: AtomicU8,
    /// How many it has read.
    count: AtomicU32,
}

impl PlainDirectories {
    /// Tracks no directory. `disk` reads names.
    pub fn new(disk: DiskThreads) -> Self {
        Self { disk, known: Vec::new() }
    }

    /// What is known about this file's directory.
    pub fn hint(&self, site: usize, path: &[u8], tick: u32) -> DirectoryHint {
        let known = self.known.iter().find(|known| known.is_of(site, path));
        match known.filter(|known| known.until > tick && known.stamp.is_as_coded() && known.is_plain()) {
            Some(known) if known.has_only_files() => DirectoryHint::OnlyFiles,
            Some(_) => DirectoryHint::NoCodings,
            None => DirectoryHint::Unknown,
        }
    }

    /// Whether this file's directory is known, and may have no encodings.
    pub fn follows(&self, site: usize, path: &[u8]) -> bool {
        self.known.iter().any(|known| known.is_of(site, path) && !known.is_coded())
    }

    /// The state of this file's directory, if it is known to have no encodings for `margin` ticks more, and nothing has
    /// changed in it.
    pub fn stamp(&self, site: usize, path: &[u8], tick: u32, margin: u32) -> Option<&WatchStamp> {
        let known = self.known.iter().find(|known| known.is_of(site, path))?;
        (known.until > tick.saturating_add(margin) && known.is_plain() && known.stamp.is_fresh())
            .then_some(&known.stamp)
    }

    /// Records that a file was looked up, and whether it has encodings, if they were looked for. `stamp` is its
    /// directory's, which is open as `place`.
    pub fn note(
        &mut self,
        (site, path): (usize, &[u8]),
        has_codings: bool,
        stamp: &WatchStamp,
        place: OwnedFd,
        until: u32,
    ) {
        let index = self.known.iter().position(|known| known.is_of(site, path));
        if has_codings {
            index.map(|index| self.known.swap_remove(index));
            return;
        }
        let Some(index) = index.filter(|index| self.known[*index].stamp.is_followed_by(stamp)) else {
            index.map(|index| self.known.swap_remove(index));
            if self.known.len() == MOST {
                // Directories in use return soon.
                self.known.swap_remove(until as usize % MOST);
            }
            let (path, stamp) = (directory_of(path).into(), stamp.clone());
            return self.known.push(Known { site, path, stamp, until, seen: 1, names: None });
        };
        let known = &mut self.known[index];
        known.stamp = stamp.clone();
        known.until = until;
        known.seen = known.seen.saturating_add(1);
        let found = match &known.names {
            None if known.seen >= SEEN => UNREAD,
            // Until they are read again, no new one is that of an encoding.
            Some(names) if names.are_outdated() && until >= names.again_from() => PLAIN,
            _ => return,
        };
        let reading = Arc::new(Reading { found: found.into(), count: AtomicU32::new(0) });
        known.names = Some(Names { reading: Arc::clone(&reading), stamp: stamp.clone(), begun: until });
        // It is watched before it is read, so later names are reported.
        self.disk.run(move |_| {
            let (found, count) = read_names(&place).unwrap_or((CODED, 0));
            reading.count.store(count, Ordering::Relaxed);
            reading.found.store(found, Ordering::Relaxed);
        });
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

impl Known {
    fn is_of(&self, site: usize, path: &[u8]) -> bool {
        self.site == site && *self.path == *directory_of(path)
    }

    /// Whether one of its names was that of an encoding when they were read.
    fn is_coded(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.found() == CODED)
    }

    /// Whether none of its names was that of an encoding when they were read.
    fn is_plain(&self) -> bool {
        self.names.as_ref().is_some_and(|names| matches!(names.found(), PLAIN | ONLY_FILES))
    }

    /// Whether all of its names are those of regular files and directories.
    fn has_only_files(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.found() == ONLY_FILES && names.stamp.is_as_named())
    }
}

impl Names {
    fn found(&self) -> u8 {
        self.reading.found.load(Ordering::Relaxed)
    }

    /// The tick from which they may be read again.
    fn again_from(&self) -> u32 {
        let more = self.reading.count.load(Ordering::Relaxed) / NAMES_A_TICK;
        self.begun.saturating_add(ticks(READ_EVERY)).saturating_add(more)
    }

    /// Whether all were those of regular files and directories, and others have come.
    fn are_outdated(&self) -> bool {
        self.found() == ONLY_FILES && !self.stamp.is_as_named()
    }
}

/// The path of a file's directory; empty for the root.
fn directory_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// What a directory's names are, [`PLAIN`], [`CODED`] or [`ONLY_FILES`], and how many were read.
fn read_names(place: &OwnedFd) -> Result<(u8, u32), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Dir::new(openat(place, ".", flags, Mode::empty())?)?;
    let mut found = ONLY_FILES;
    for count in 0..MOST_NAMES {
        let Some(name) = names.next() else { return Ok((found, count)) };
        let name = name?;
        if is_of_coding(name.file_name().to_bytes()) {
            return Ok((CODED, count));
        }
        // A link may lead to anything. Some file systems don't tell what a name is.
        if !matches!(name.file_type(), FileType::RegularFile | FileType::Directory) {
            found = PLAIN;
        }
    }
    Ok((CODED, MOST_NAMES))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::cache::watch::Watcher;

    impl PlainDirectories {
        fn has(&self, site: usize, path: &[u8], tick: u32) -> bool {
            self.hint(site, path, tick) != DirectoryHint::Unknown
        }
    }

    struct Fixture {
        place: tempfile::TempDir,
        watcher: Watcher,
        plain: PlainDirectories,
    }

    impl Fixture {
        fn new() -> Self {
            let place = tempfile::tempdir().expect("a directory");
            fs::create_dir(place.path().join("d")).expect("a directory");
            let plain = PlainDirectories::new(DiskThreads::start().expect("threads"));
            Self { place, watcher: Watcher::new().expect("inotify"), plain }
        }

        fn directory(&self) -> std::path::PathBuf {
            self.place.path().join("d")
        }

        /// Looks up a file of the directory that has no encodings.
        fn look_up(&mut self, path: &Path, until: u32) {
            self.watcher.read();
            let place = OwnedFd::from(fs::File::open(path).expect("a directory"));
            let stamp = self.watcher.stamp(&place).expect("a watch");
            self.plain.note((0, b"d/f"), false, &stamp, place, until);
        }

        /// Repeats that until the directory's names have been read. Returns whether it is known to be plain then.
        fn learn(&mut self) -> bool {
            let path = self.directory();
            testkit::until("its names are read", || {
                self.look_up(&path, 5);
                let is_read = |names: &Names| names.found() != UNREAD;
                self.plain.known.iter().any(|known| known.names.as_ref().is_some_and(is_read))
            });
            self.plain.has(0, b"d/g", 1)
        }
    }

    #[test]
    fn a_directory_without_codings_is_known_until_one_comes() {
        let mut fixture = Fixture::new();
        fs::write(fixture.directory().join("f"), "text").expect("a file");
        assert!(fixture.learn());
        assert!(
            !fixture.plain.has(0, b"e/g", 1)
                && !fixture.plain.has(0, b"g", 1)
                && !fixture.plain.has(1, b"d/g", 1)
        );
        assert!(!fixture.plain.has(0, b"d/g", 5), "the path may be another directory's by now");
        // Names without such a suffix make no difference, nor do writes to existing files.
        fs::write(fixture.directory().join("f"), "another").expect("a file");
        fs::write(fixture.directory().join("g.txt"), "text").expect("a file");
        fixture.watcher.read();
        assert!(fixture.plain.has(0, b"d/g", 1));
        let directory = fixture.directory();
        fixture.look_up(&directory, 9);
        assert!(fixture.plain.has(0, b"d/g", 8));
        for suffix in ["gz", "zst", "br"] {
            let coding = fixture.directory().join(format!("f.{suffix}"));
            fs::write(&coding, "coded").expect("a file");
            fixture.watcher.read();
            assert!(!fixture.plain.has(0, b"d/g", 1), "{suffix}");
            assert!(!fixture.learn(), "{suffix} is there");
            fs::remove_file(&coding).expect("removed");
            fixture.watcher.read();
            assert!(fixture.learn(), "{suffix} is gone");
        }
        // A rename to such a name counts too.
        fs::rename(fixture.directory().join("f"), fixture.directory().join("g.gz")).expect("renamed");
        fixture.watcher.read();
        assert!(!fixture.plain.has(0, b"d/g", 1));
    }

    #[test]
    fn a_directory_that_gets_a_name_may_have_more_than_files_until_its_names_are_read_again() {
        let mut fixture = Fixture::new();
        let directory = fixture.directory();
        fs::write(directory.join("f"), "text").expect("a file");
        fs::create_dir(directory.join("g")).expect("a directory");
        assert!(fixture.learn());
        let hint = |fixture: &Fixture| fixture.plain.hint(0, b"d/f", 1);
        assert_eq!(hint(&fixture), DirectoryHint::OnlyFiles);
        // Writing to a file, removing one and making a directory change nothing about the others.
        fs::write(directory.join("f"), "another").expect("a file");
        fs::remove_dir(directory.join("g")).expect("removed");
        fs::create_dir(directory.join("h")).expect("a directory");
        fixture.watcher.read();
        assert_eq!(hint(&fixture), DirectoryHint::OnlyFiles);
        fs::write(directory.join("g"), "text").expect("a file");
        fixture.watcher.read();
        assert_eq!(hint(&fixture), DirectoryHint::NoCodings);
        fixture.look_up(&directory, 6);
        assert_eq!(hint(&fixture), DirectoryHint::NoCodings, "they were just read");
        fixture.look_up(&directory, 5 + ticks(READ_EVERY));
        testkit::until("its names are read again", || hint(&fixture) == DirectoryHint::OnlyFiles);
        let fifo = |name: &str| {
            let path = directory.join(name);
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        };
        fifo("i");
        fixture.watcher.read();
        assert_eq!(hint(&fixture), DirectoryHint::NoCodings);
        let place = OwnedFd::from(fs::File::open(&directory).expect("a directory"));
        let names = || read_names(&place).map(|(found, _)| found);
        assert_eq!(names(), Ok(PLAIN));
        fs::remove_file(directory.join("i")).expect("removed");
        assert_eq!(names(), Ok(ONLY_FILES));
        std::os::unix::fs::symlink("f", directory.join("link")).expect("a link");
        assert_eq!(names(), Ok(PLAIN));
    }

    #[test]
    fn the_more_names_a_directory_has_the_later_they_are_read_again() {
        let mut fixture = Fixture::new();
        let directory = fixture.directory();
        for number in 0..=3 * NAMES_A_TICK {
            fs::write(directory.join(number.to_string()), "").expect("a file");
        }
        assert!(fixture.learn());
        fs::write(directory.join("new"), "").expect("a file");
        fixture.watcher.read();
        let again_from = 5 + ticks(READ_EVERY) + 3;
        let hint = |fixture: &Fixture| fixture.plain.hint(0, b"d/0", 1);
        for until in [5, again_from - 1] {
            fixture.look_up(&directory, until);
            assert_eq!(hint(&fixture), DirectoryHint::NoCodings, "{until}");
        }
        // The thread has as long as it needs.
        fixture.look_up(&directory, again_from);
        testkit::until("its names are read again", || hint(&fixture) == DirectoryHint::OnlyFiles);
    }

    #[test]
    fn another_directory_of_the_name_is_another() {
        let mut fixture = Fixture::new();
        assert!(fixture.learn());
        let other = fixture.place.path().join("other");
        fs::create_dir(&other).expect("a directory");
        fixture.look_up(&other, 5);
        assert!(!fixture.plain.has(0, b"d/g", 1), "what the path stands for has not been read");
    }

    #[test]
    fn what_nobody_tells_of_shows_by_the_time_of_change() {
        let mut fixture = Fixture::new();
        assert!(fixture.learn());
        // A file server for other clients does this: the modification time changes, and inotify reports nothing here.
        let directory = fs::File::open(fixture.directory()).expect("a directory");
        directory.set_modified(std::time::UNIX_EPOCH).expect("a time");
        let place = OwnedFd::from(directory);
        let stamp = fixture.watcher.stamp(&place).expect("a watch");
        fixture.plain.note((0, b"d/f"), false, &stamp, place, 5);
        assert!(!fixture.plain.has(0, b"d/g", 1));
    }

    #[test]
    fn a_directory_need_not_be_opened_again_until_it_changes_or_time_passes() {
        let mut fixture = Fixture::new();
        assert!(fixture.plain.stamp(0, b"d/g", 1, 2).is_none(), "not known");
        assert!(fixture.learn());
        let known = |fixture: &Fixture, tick| {
            fixture.plain.stamp(0, b"d/g", tick, 2).map(|stamp| stamp.is_fresh() && stamp.is_as_coded())
        };
        assert_eq!([1, 2, 3, 5].map(|tick| known(&fixture, tick)), [Some(true), Some(true), None, None]);
        fs::write(fixture.directory().join("f"), "text").expect("a file");
        fixture.watcher.read();
        assert_eq!(known(&fixture, 1), None, "any change counts");
        let directory = fixture.directory();
        fixture.look_up(&directory, 9);
        assert_eq!(known(&fixture, 6), Some(true), "looked up again");
    }

    #[test]
    fn few_are_known_and_those_with_codings_are_not() {
        let mut fixture = Fixture::new();
        let path = fixture.directory();
        let place = || OwnedFd::from(fs::File::open(&path).expect("a directory"));
        let stamp = fixture.watcher.stamp(&place()).expect("a watch");
        for number in 0..10 * MOST as u32 {
            fixture.plain.note((0, format!("{number}/f").as_bytes()), false, &stamp, place(), number);
        }
        assert_eq!(fixture.plain.known.len(), MOST);
        let last = format!("{}/f", 10 * MOST - 1);
        fixture.plain.note((0, last.as_bytes()), true, &stamp, place(), 5);
        assert_eq!(fixture.plain.known.len(), MOST - 1);
    }
}
