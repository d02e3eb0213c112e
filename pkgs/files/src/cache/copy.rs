//! A copy of a file, and where an open file remembers its own.

use std::cell::RefCell;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::site::root::FileIdentity;

/// A copy of a file.
#[derive(Debug)]
pub struct FileCopy<C> {
    pub(super) identity: FileIdentity,
    pub(super) content: C,
    pub(super) used: AtomicBool,
}

/// What a copy is.
pub trait CopyContent: Debug + Send + Sync + Sized + 'static {
    /// A copy of the first `size` bytes of a file. It may wait for the disk.
    ///
    /// # Errors
    /// Those of the calls it takes.
    fn of(fd: &OwnedFd, size: u64) -> Result<Self, Errno>;

    /// How many file descriptors it takes.
    fn descriptors(&self) -> usize;
}

/// What remembers the copy of it that was found last.
pub trait CopySlot<C> {
    /// That copy, where it is still there.
    fn slot(&self) -> &RefCell<Weak<FileCopy<C>>>;
}

impl<C: CopyContent> FileCopy<C> {
    /// A copy of a file in this state. It may wait for the disk.
    ///
    /// # Errors
    /// Those of the calls it takes, and [`Errno::BUSY`] where the file has changed.
    pub(super) fn of(fd: &OwnedFd, identity: FileIdentity) -> Result<Self, Errno> {
        let content = C::of(fd, identity.size)?;
        // Looked at after reading: what was read while it changed is not kept.
        if !identity.is_unchanged(fd) {
            return Err(Errno::BUSY);
        }
        Ok(Self { identity, content, used: AtomicBool::new(true) })
    }

    /// It is asked for.
    pub(super) fn used(&self) {
        // Looked at first, for writing takes the cache line from the other workers.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// The copy itself.
    pub fn content(&self) -> &C {
        &self.content
    }
}
