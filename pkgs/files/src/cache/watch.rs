//! Changes below the root, from inotify(7).
//!
//! Directories are watched, not files: a replaced file is another file, but its directory reports it. A change only
//! causes entries to be looked up again, so a false alarm costs little. If there can be no more watches, only the time
//! limit applies.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

use rustix::fs::fstat;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::http::encoding::is_of_coding;

/// All events that may change what a name in the directory refers to.
const CHANGES: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Room for about a hundred events with names of usual length.
const BUFFER_BYTES: usize = 8 * 1024;

/// Watches the directories of a worker's entries.
#[derive(Debug)]
pub struct Watcher {
    inotify: Rc<OwnedFd>,
    /// By watch number, until the kernel reports its end.
    directories: HashMap<i32, (Inode, Weak<Directory>)>,
    /// The watch of each that has one.
    watches: HashMap<Inode, i32>,
}

/// Device and inode number. No other directory has them while this one is watched, since that keeps the kernel's inode.
type Inode = (u64, u64);

/// A watched directory. The watch ends when nobody uses it.
#[derive(Debug)]
struct Directory {
    inotify: Rc<OwnedFd>,
    watch: i32,
    changes: Cell<u64>,
    /// Events about names with an encoding's suffix, or about the directory itself.
    coded: Cell<u64>,
    /// Events about new names of anything but directories, or about the directory itself.
    named: Cell<u64>,
}

/// Seconds since 1970, and nanoseconds.
type Time = (i64, i64);

/// A directory's state at some time.
#[derive(Clone, Debug)]
pub struct WatchStamp {
    directory: Rc<Directory>,
    changes: u64,
    coded: u64,
    named: u64,
    modified: Time,
}

impl WatchStamp {
    /// Whether nothing has changed since.
    pub fn is_fresh(&self) -> bool {
        self.directory.changes.get() == self.changes
    }

    /// Whether nothing about encodings has changed since.
    pub fn is_as_coded(&self) -> bool {
        self.directory.coded.get() == self.coded
    }

    /// Whether no name has come since, nor come to stand for something else, except for directories.
    pub fn is_as_named(&self) -> bool {
        self.directory.named.get() == self.named
    }

    /// Whether a later stamp is of the same directory, without a change about encodings or an unreported one in
    /// between.
    pub fn is_followed_by(&self, later: &Self) -> bool {
        Rc::ptr_eq(&self.directory, &later.directory)
            && self.coded == later.coded
            && (self.modified == later.modified || self.changes != later.changes)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The kernel may already have ended the watch with the directory.
        let _ = inotify::remove_watch(&*self.inotify, self.watch);
    }
}

impl Watcher {
    /// A watcher without watches; none if the user's limit of instances is reached.
    pub fn new() -> Option<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        Some(Self { inotify: Rc::new(inotify), directories: HashMap::new(), watches: HashMap::new() })
    }

    /// Watches a directory from here on. None if the user's limit of watches is reached.
    pub fn stamp(&mut self, directory: &OwnedFd) -> Option<WatchStamp> {
        let stat = fstat(directory).ok()?;
        let inode = (stat.st_dev, stat.st_ino);
        let directory = self.watched(inode).or_else(|| self.watch(inode, directory))?;
        let (changes, coded) = (directory.changes.get(), directory.coded.get());
        let (named, modified) = (directory.named.get(), (stat.st_mtime, stat.st_mtime_nsec as i64));
        Some(WatchStamp { directory, changes, coded, named, modified })
    }

    /// A directory that is already watched. If it was deleted and its number reused, the end of its watch is still
    /// unread, and will count as a change.
    fn watched(&self, inode: Inode) -> Option<Rc<Directory>> {
        self.directories.get(self.watches.get(&inode)?)?.1.upgrade()
    }

    fn watch(&mut self, inode: Inode, directory: &OwnedFd) -> Option<Rc<Directory>> {
        // Watches by descriptor, so that it is the directory that was found, not another with its name.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = inotify::add_watch(&*self.inotify, path, CHANGES).ok()?;
        let inotify = Rc::clone(&self.inotify);
        let (changes, coded, named) = Default::default();
        let directory = Rc::new(Directory { inotify, watch, changes, coded, named });
        self.directories.insert(watch, (inode, Rc::downgrade(&directory)));
        self.watches.insert(inode, watch);
        Some(directory)
    }

    /// Signals events to a task of this thread's runtime.
    ///
    /// # Errors
    /// When no file descriptor is left.
    #[allow(unsafe_code)]
    pub fn wait(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let inotify = self.inotify.try_clone()?;
        // SAFETY: an `OwnedFd` that nobody takes out stays open and unchanged as long as it lives.
        Ok(unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) }?)
    }

    /// Reads the events.
    pub fn read(&mut self) {
        let mut buffer = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&*self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                let all = self.directories.values().filter_map(|(_, directory)| directory.upgrade());
                all.for_each(|directory| directory.changed(true, true));
            } else if let Some((_, directory)) = self.directories.get(&event.wd())
                && let Some(directory) = directory.upgrade()
            {
                let name = event.file_name();
                let events = event.events();
                let is_new = events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO)
                    && !events.contains(ReadFlags::ISDIR);
                directory
                    .changed(name.is_none_or(|name| is_of_coding(name.to_bytes())), name.is_none() || is_new);
            }
            if event.events().contains(ReadFlags::IGNORED)
                && let Some((inode, _)) = self.directories.remove(&event.wd())
                && self.watches.get(&inode) == Some(&event.wd())
            {
                self.watches.remove(&inode);
            }
        }
    }
}

impl Directory {
    fn changed(&self, is_about_codings: bool, is_about_new_names: bool) {
        self.changes.set(self.changes.get() + 1);
        self.coded.set(self.coded.get() + u64::from(is_about_codings));
        self.named.set(self.named.get() + u64::from(is_about_new_names));
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_stamp_is_fresh_until_its_directory_changes() {
        let place = tempfile::tempdir().expect("a directory");
        let (watched, other) = (place.path().join("a"), place.path().join("b"));
        fs::create_dir(&watched).expect("a directory");
        fs::create_dir(&other).expect("a directory");
        fs::write(watched.join("file"), "1").expect("a file");
        let mut watcher = Watcher::new().expect("inotify");
        let mut stamp = || {
            let directory = fs::File::open(&watched).expect("a directory");
            let stamp = watcher.stamp(&directory.into()).expect("a watch");
            watcher.read();
            stamp
        };
        let changes: [fn(&std::path::Path); 5] = [
            |path| fs::write(path.join("file"), "2").expect("written"),
            |path| fs::write(path.join("new"), "1").expect("made"),
            |path| fs::rename(path.join("new"), path.join("file")).expect("renamed"),
            |path| fs::remove_file(path.join("file")).expect("removed"),
            |path| fs::rename(path, path.with_extension("gone")).expect("renamed"),
        ];
        fs::write(other.join("file"), "1").expect("a file");
        assert!(stamp().is_fresh());
        let stamps: Vec<WatchStamp> = changes
            .iter()
            .map(|change| {
                let fresh = stamp();
                change(&watched);
                fresh
            })
            .collect();
        watcher.read();
        for (number, stamp) in stamps.iter().enumerate() {
            assert!(!stamp.is_fresh(), "change {number}");
        }
    }
    #[test]
    fn a_directory_has_one_watch_until_it_ends() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a");
        let mut watcher = Watcher::new().expect("inotify");
        let mut stamp = |reads: bool| {
            let directory = fs::File::open(&path).expect("a directory");
            let stamp = watcher.stamp(&directory.into()).expect("a watch");
            if reads {
                watcher.read();
            }
            stamp
        };
        fs::create_dir(&path).expect("a directory");
        let (first, second) = (stamp(true), stamp(true));
        assert!(Rc::ptr_eq(&first.directory, &second.directory));
        // The new directory may get the old inode number before the watcher has read that the old one is gone.
        fs::remove_dir(&path).expect("removed");
        fs::create_dir(&path).expect("a directory");
        let unread = stamp(false);
        let third = stamp(true);
        assert!(
            !first.is_fresh() && (!Rc::ptr_eq(&unread.directory, &first.directory) || !unread.is_fresh())
        );
        let fourth = stamp(true);
        assert!(fourth.is_fresh() && !Rc::ptr_eq(&fourth.directory, &first.directory));
        fs::write(path.join("file"), "1").expect("a file");
        // Events that are still unread when a stamp is taken count against the stamp.
        let fifth = [stamp(true), stamp(true)][1].clone();
        assert!(!fourth.is_fresh() && fifth.is_fresh());
        drop(third);
    }
}
