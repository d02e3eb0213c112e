/// The most parameters of a route. Captures are kept in place, so that matching never allocates.
pub const MAX_PARAMS: usize = 16;

/// What the parameters of a route matched: byte ranges of the path, in the order of the route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    ranges: [(u16, u16); MAX_PARAMS],
    count: u8,
    /// Whether one of them may have a `%`.
    pub(super) escapes: bool,
}

impl Captures {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self { ranges: [(0, 0); MAX_PARAMS], count: 0, escapes: false }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What the parameter at `index` is in `path`, as it stands there. `None` past the last, and for a
    /// path that is not the one that was matched and has no such range.
    #[inline]
    pub fn get<'p>(&self, path: &'p str, index: usize) -> Option<&'p str> {
        let &(start, end) = self.ranges[..self.len()].get(index)?;
        path.get(usize::from(start)..usize::from(end))
    }

    /// Appends a range; both ends are within a path that is no longer than [`MAX_PATH`](super::MAX_PATH),
    /// and a route has no more than [`MAX_PARAMS`] of them.
    #[inline(always)]
    pub(super) fn push(&mut self, start: usize, end: usize) {
        if let Some(range) = self.ranges.get_mut(usize::from(self.count)) {
            *range = (start as u16, end as u16);
            self.count += 1;
        }
    }

    /// Forgets all but the first `count`.
    #[inline(always)]
    pub(super) fn truncate(&mut self, count: usize) {
        self.count = count as u8;
    }

    /// Moves every end of a range.
    pub(super) fn map(&mut self, moved: impl Fn(usize) -> usize) {
        for (start, end) in &mut self.ranges[..usize::from(self.count)] {
            (*start, *end) = (moved(usize::from(*start)) as u16, moved(usize::from(*end)) as u16);
        }
    }
}
