//! Counts how often code allocates memory.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which also counts the allocations of each thread. A test has to declare it as its
/// `#[global_allocator]`.
pub struct Counting;

// SAFETY: all calls go to the system's allocator. The methods that are missing here have defaults that use these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The number of allocations that `what` makes on this thread, and its result.
pub fn allocations<T>(what: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = what();
    (ALLOCATIONS.with(Cell::get) - before, result)
}
