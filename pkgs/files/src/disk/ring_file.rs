//! Files for a [ring](super::ring): read directly, around the page cache, or through it.

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;

use crate::site::root::FileIdentity;

/// A file for a ring.
pub trait RingFile {
    /// The file for direct reads, around the page cache; none if that fails.
    fn around_the_page_cache(&self) -> Option<Arc<OwnedFd>>;

    /// The file for reads through the page cache that may wait.
    fn through_the_page_cache(&self) -> Arc<OwnedFd>;

    /// Records that direct reads fail.
    fn refuse_direct(&self);
}

/// A file that others read through the page cache meanwhile.
#[derive(Debug)]
pub struct SharedFile {
    fd: Arc<OwnedFd>,
    identity: FileIdentity,
    refuses_direct: Cell<bool>,
}

impl SharedFile {
    /// A file in its state at opening.
    pub fn new(fd: Arc<OwnedFd>, identity: FileIdentity) -> Self {
        Self { fd, identity, refuses_direct: Cell::new(false) }
    }

    /// The identity of the file, in any state.
    pub fn place(&self) -> impl std::hash::Hash + use<> {
        self.identity.place()
    }

    /// Whether its bytes are still those that it was opened with.
    pub fn is_intact(&self) -> bool {
        FileIdentity::of(&*self.fd).is_ok_and(|(now, _)| self.identity.has_same_bytes(&now))
    }
}

impl RingFile for SharedFile {
    fn around_the_page_cache(&self) -> Option<Arc<OwnedFd>> {
        if self.refuses_direct.get() {
            return None;
        }
        open_direct(&self.fd).ok()
    }

    fn through_the_page_cache(&self) -> Arc<OwnedFd> {
        // It was opened with reads that do not wait, whose error the ring would take for the answer.
        let _ = fcntl_setfl(&*self.fd, OFlags::empty());
        Arc::clone(&self.fd)
    }

    fn refuse_direct(&self) {
        self.refuses_direct.set(true);
    }
}

/// Opens an open file again, for direct reads.
///
/// # Errors
/// [`Errno::INVAL`] if its file system does not support them.
pub fn open_direct(fd: &OwnedFd) -> Result<Arc<OwnedFd>, Errno> {
    let place = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(place, flags, Mode::empty()).map(Arc::new)
}
