//! The memory for the bytes of small files.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// What is left of a thread's memory, in bytes.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Rc<Cell<usize>>);

/// The bytes of a file. They take their size from the budget until they are dropped, whoever has the file last: its
/// entry, that of a file from which it was made, or a transfer.
#[derive(Debug)]
pub struct KeptBytes {
    bytes: Box<[u8]>,
    budget: MemoryBudget,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    /// Takes `size` bytes, which are zero; none if less is left.
    pub fn take(&self, size: usize) -> Option<KeptBytes> {
        let left = self.left().checked_sub(size)?;
        let bytes = vec![0; size].into_boxed_slice();
        self.0.set(left);
        Some(KeptBytes { bytes, budget: self.clone() })
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.0.get()
    }
}

impl Deref for KeptBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for KeptBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.budget.0.set(self.budget.left() + self.bytes.len());
    }
}
