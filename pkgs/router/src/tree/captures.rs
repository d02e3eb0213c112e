//! The matches of parameters, stored without allocation.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::MaybeUninit;

use crate::limits::MAX_PARAMS;

/// The texts that a route's parameters match: byte ranges of the path, in the route's order.
#[derive(Clone, Copy)]
pub(crate) struct Captures {
    /// The first `count` ranges are initialised. To clear all of them would take longer than most matches.
    ranges: [MaybeUninit<(u16, u16)>; MAX_PARAMS],
    count: u8,
    /// Whether any of the ranges may contain a `%`.
    pub(super) escapes: bool,
}

impl Captures {
    /// Captures without ranges.
    pub(crate) const fn new() -> Self {
        Self { ranges: [const { MaybeUninit::uninit() }; MAX_PARAMS], count: 0, escapes: false }
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether any of the ranges may contain a `%`.
    #[inline]
    pub(crate) fn has_escapes(&self) -> bool {
        self.escapes
    }

    /// The text of the parameter at `index`, as written in `path`. `None` if there is no such parameter.
    #[inline]
    pub(crate) fn get<'p>(&self, path: &'p str, index: usize) -> Option<&'p str> {
        let range = self.ranges[..self.len()].get(index)?;
        // SAFETY: the first `count` ranges are initialised.
        let (start, end) = unsafe { range.assume_init() };
        path.get(usize::from(start)..usize::from(end))
    }

    /// Appends a range. Both ends are within a path no longer than [`MAX_PATH`](crate::MAX_PATH), and a route has at
    /// most [`MAX_PARAMS`] ranges.
    #[inline(always)]
    pub(super) fn push(&mut self, start: usize, end: usize) {
        if let Some(range) = self.ranges.get_mut(usize::from(self.count)) {
            range.write((start as u16, end as u16));
            self.count += 1;
        }
    }

    /// Removes all ranges but the first `count`.
    #[inline(always)]
    pub(super) fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count as u8);
    }

    /// Maps both ends of every range.
    pub(super) fn map(&mut self, moved: impl Fn(usize) -> usize) {
        for range in &mut self.ranges[..usize::from(self.count)] {
            // SAFETY: the first `count` ranges are initialised.
            let (start, end) = unsafe { range.assume_init() };
            range.write((moved(usize::from(start)) as u16, moved(usize::from(end)) as u16));
        }
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = self.ranges[..self.len()].iter();
        // SAFETY: the first `count` ranges are initialised.
        f.debug_list().entries(written.map(|range| unsafe { range.assume_init() })).finish()
    }
}
