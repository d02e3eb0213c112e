//! What is wrong with a document, each with a pointer (RFC 6901).

use std::fmt::Display;

use service::problem::Fault;

/// So many faults are told; who has more knows enough.
const MOST: usize = 50;

/// The faults found so far. Costs nothing while all is well: a fault learns where it is as the looking returns from
/// there.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at a member.
    #[inline]
    pub fn member<T>(&mut self, name: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.count();
        let result = look(self);
        if self.count() > before {
            self.place(before, name);
        }
        result
    }

    /// Looks at an element.
    #[inline]
    pub fn element<T>(&mut self, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.count();
        let result = look(self);
        if self.count() > before {
            self.place(before, &index.to_string());
        }
        result
    }

    /// All but the first so many are within this segment.
    #[cold]
    fn place(&mut self, before: usize, segment: &str) {
        for fault in &mut self.0[before..] {
            let mut pointer = String::new();
            push_segment(&mut pointer, segment);
            fault.pointer.insert_str(0, &pointer);
        }
    }

    /// Something is wrong here.
    #[cold]
    pub fn add(&mut self, detail: impl Display) {
        if self.count() < MOST {
            self.0.push(Fault { pointer: String::new(), detail: detail.to_string() });
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub fn into_found(self) -> Vec<Fault> {
        self.0
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
