//! How the process takes memory from the system.

/// Takes memory in pages of 4 KiB, where the system would rather give 2 MiB.
///
/// A transparent huge page counts whole as soon as one byte of it is touched, so an allocator that asks for
/// them costs a small service some 20 MiB for nothing. Call first thing in `main`: memory given out before
/// keeps its pages.
///
/// # Errors
/// When the kernel has no such setting (prctl(2), `PR_SET_THP_DISABLE`); nothing changes then.
pub fn refuse_huge_pages() -> std::io::Result<()> {
    Ok(rustix::thread::disable_transparent_huge_pages(true)?)
}
