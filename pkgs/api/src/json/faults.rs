//! What is wrong with a document, each with a pointer (RFC 6901).

use std::fmt::Display;

use service::problem::Fault;

/// So many faults are told; who has more knows enough.
const MOST: usize = 50;

/// The faults found so far, and the place that is looked at. Costs nothing while all is well.
#[derive(Debug, Default)]
pub struct Faults {
    place: Vec<Segment>,
    found: Vec<Fault>,
}

#[derive(Clone, Debug)]
enum Segment {
    Name(&'static str),
    Own(String),
    Index(usize),
}

impl Faults {
    /// None, at the root.
    pub fn new() -> Self {
        Self { place: Vec::with_capacity(8), found: Vec::new() }
    }

    /// Looks at a member that is known by name.
    #[inline]
    pub fn member<T>(&mut self, name: &'static str, look: impl FnOnce(&mut Self) -> T) -> T {
        self.within(Segment::Name(name), look)
    }

    /// Looks at a member of the client's choice.
    pub fn named<T>(&mut self, name: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        self.within(Segment::Own(name.to_owned()), look)
    }

    /// Looks at an element.
    #[inline]
    pub fn element<T>(&mut self, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        self.within(Segment::Index(index), look)
    }

    #[inline]
    fn within<T>(&mut self, segment: Segment, look: impl FnOnce(&mut Self) -> T) -> T {
        self.place.push(segment);
        let result = look(self);
        self.place.pop();
        result
    }

    /// Something is wrong here.
    #[cold]
    pub fn add(&mut self, detail: impl Display) {
        if self.found.len() < MOST {
            let mut pointer = String::new();
            for segment in &self.place {
                match segment {
                    Segment::Name(name) => push_segment(&mut pointer, name),
                    Segment::Own(name) => push_segment(&mut pointer, name),
                    Segment::Index(index) => push_segment(&mut pointer, &index.to_string()),
                }
            }
            self.found.push(Fault { pointer, detail: detail.to_string() });
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// All of them.
    pub fn into_found(self) -> Vec<Fault> {
        self.found
    }
}

/// Adds a reference token to a pointer (RFC 6901, section 3).
pub(super) fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for letter in segment.chars() {
        match letter {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}
