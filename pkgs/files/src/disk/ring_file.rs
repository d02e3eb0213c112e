//! Files as a [ring](super::ring) reads them: around the page cache, or through it.

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;

use crate::site::root::FileIdentity;

/// A file as a ring reads it.
pub trait RingFile {
    /// The file, to be read around the page cache; none where that cannot be.
    fn around_the_page_cache(&self) -> Option<Arc<OwnedFd>>;

    /// The file, to be read through the page cache, by reads that may wait.
    fn through_the_page_cache(&self) -> Arc<OwnedFd>;

    /// It turned out that it cannot be read around the page cache.
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
    /// This one, which was like that when it was opened.
    pub fn new(fd: Arc<OwnedFd>, identity: FileIdentity) -> Self {
        Self { fd, identity, refuses_direct: Cell::new(false) }
    }

    /// Which file it is, whatever its state.
    pub fn place(&self) -> impl std::hash::Hash + use<> {
        self.identity.place()
    }

    /// Whether its bytes are still those it was opened with.
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
        // It was opened so that its reads do not wait, which the ring would take for an answer.
        let _ = fcntl_setfl(&*self.fd, OFlags::empty());
        Arc::clone(&self.fd)
    }

    fn refuse_direct(&self) {
        self.refuses_direct.set(true);
    }
}

/// Opens an open file once more, to be read around the page cache.
///
/// # Errors
/// [`Errno::INVAL`] where its file system has no such reads.
pub fn open_direct(fd: &OwnedFd) -> Result<Arc<OwnedFd>, Errno> {
    let place = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(place, flags, Mode::empty()).map(Arc::new)
}
