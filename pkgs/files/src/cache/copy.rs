//! A copy of a file, and the slot in which an open file remembers it.

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

/// The content of a copy.
pub trait CopyContent: Debug + Send + Sync + Sized + 'static {
    /// Copies the first `size` bytes of a file. May wait for the disk.
    ///
    /// # Errors
    /// Those of its system calls.
    fn of(fd: &OwnedFd, size: u64) -> Result<Self, Errno>;

    /// The number of file descriptors it uses.
    fn descriptors(&self) -> usize;
}

/// Remembers the copy that was last found.
pub trait CopySlot<C> {
    /// The copy, if it still exists.
    fn slot(&self) -> &RefCell<Weak<FileCopy<C>>>;
}

impl<C: CopyContent> FileCopy<C> {
    /// A copy of a file in this state. May wait for the disk.
    ///
    /// # Errors
    /// Those of its system calls, and [`Errno::BUSY`] if the file has changed.
    pub(super) fn of(fd: &OwnedFd, identity: FileIdentity) -> Result<Self, Errno> {
        let content = C::of(fd, identity.size)?;
        // Checked after reading, so that data read during a change is not kept.
        if !identity.is_unchanged(fd) {
            return Err(Errno::BUSY);
        }
        Ok(Self { identity, content, used: AtomicBool::new(true) })
    }

    /// Records its use.
    pub(super) fn used(&self) {
        // Checked first, since writing takes the cache line from other workers.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// The copy itself.
    pub fn content(&self) -> &C {
        &self.content
    }
}
