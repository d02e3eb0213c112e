//! What is wrong with a document, each with a pointer (RFC 6901).

use std::fmt::Display;

use service::problem::Fault;

/// So many faults are told; who has more knows enough.
const MOST: usize = 50;

/// The longest segment of a pointer and the longest detail that is told, in characters. No name or value that is known
/// is longer, and fifty of the longest that a body may have would be fifty times the body.
const MOST_CHARS: usize = 256;

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
            let mut told = String::new();
            push_text(&mut told, &detail.to_string(), |text, letter| text.push(letter));
            self.0.push(Fault { pointer: String::new(), detail: told });
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
    push_text(pointer, segment, |pointer, letter| match letter {
        '~' => pointer.push_str("~0"),
        '/' => pointer.push_str("~1"),
        other => pointer.push(other),
    });
}

/// Adds a text that a client chose, as far as it is told.
fn push_text(told: &mut String, text: &str, push: fn(&mut String, char)) {
    for (index, letter) in text.chars().enumerate() {
        if index == MOST_CHARS {
            return told.push('…');
        }
        push(told, letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_short_whatever_a_client_sends() {
        let (name, mut faults) = ("/".repeat(1 << 20), Faults::new());
        for index in 0..2 * MOST {
            faults.member(&name, |faults| faults.element(index, |faults| faults.add(&name)));
        }
        let found = faults.into_found();
        assert_eq!(found.len(), MOST);
        for fault in found {
            assert!(fault.pointer.starts_with("/~1~1") && fault.pointer.contains('…'), "{}", fault.pointer);
            assert!(fault.pointer.len() + fault.detail.len() < 4 * MOST_CHARS, "{fault:?}");
        }
    }
}
