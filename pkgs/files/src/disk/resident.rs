//! Whether a part of a file is in the page cache, so that sending it does not wait for the disk.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// cachestat(2), since Linux 6.5, has this number on all architectures but alpha.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of linux/mman.h: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether all of `range` can be read without waiting. If the kernel cannot tell, assumes so.
pub fn is_resident(fd: impl AsFd, range: &Range<u64>) -> bool {
    // Pages count as cached once their read starts, in the order of the file, so the last one tells.
    has_all_pages(&fd, range) && is_read(&fd, range.start) && is_read(&fd, range.end - 1)
}

fn has_all_pages(fd: impl AsFd, range: &Range<u64>) -> bool {
    let page = rustix::param::page_size() as u64;
    let pages = range.end.div_ceil(page) - range.start / page;
    let asked = CachestatRange { offset: range.start, length: range.end - range.start };
    let mut answer = Cachestat::default();
    // SAFETY: the two structs have the kernel's layout and live until the call returns; the file descriptor is
    // borrowed, and so open.
    let failed = unsafe {
        libc::syscall(CACHESTAT, fd.as_fd().as_raw_fd(), &raw const asked, &raw mut answer, 0_u32) != 0
    };
    failed || answer.cached >= pages
}

/// Whether the byte at `offset` can be read at once (preadv2(2), RWF_NOWAIT).
fn is_read(fd: impl AsFd, offset: u64) -> bool {
    let mut byte = [0];
    preadv2(fd, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[test]
    fn what_was_just_written_is_resident_and_what_was_dropped_is_not() {
        // The file is not on tmpfs, where no file can be cold.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        let length = 1 << 20;
        file.write_all(&vec![1; length]).expect("room");
        let all = 0..length as u64;
        assert!(is_resident(&file, &all));
        // The kernel drops pages only once they are written, and on its LRU lists. So this tries again.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while is_resident(&file, &all) || is_resident(&file, &(4096..4097)) {
            assert!(std::time::Instant::now() < deadline, "they stay");
            file.sync_all().expect("written");
            fadvise(&file, 0, None, Advice::DontNeed).expect("advice is taken");
        }
    }
}
