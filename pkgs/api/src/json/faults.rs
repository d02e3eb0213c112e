//! The faults of a document, each with a pointer (RFC 6901).

use std::fmt::Display;

use service::problem::Fault;

/// How many faults are reported; more would not help.
const MOST: usize = 50;

/// The longest segment of a pointer and the longest detail that are reported, in characters. Known names and values are
/// shorter. Without this limit, fifty faults that each repeat a text as long as the body would take fifty times the
/// body.
const MOST_CHARS: usize = 256;

/// The faults found so far. It costs nothing without faults: a fault gets its pointer as the checks return.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a member.
    #[inline]
    pub fn member<T>(&mut self, name: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.count();
        let result = look(self);
        if self.count() > before {
            self.place(before, name);
        }
        result
    }

    /// Checks an element.
    #[inline]
    pub fn element<T>(&mut self, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.count();
        let result = look(self);
        if self.count() > before {
            self.place(before, &index.to_string());
        }
        result
    }

    /// Adds this segment to all faults after the first `before`.
    #[cold]
    fn place(&mut self, before: usize, segment: &str) {
        for fault in &mut self.0[before..] {
            let mut pointer = String::new();
            push_segment(&mut pointer, segment);
            fault.pointer.insert_str(0, &pointer);
        }
    }

    /// Adds a fault at the current place.
    #[cold]
    pub fn add(&mut self, detail: impl Display) {
        if self.count() < MOST {
            let mut told = String::new();
            push_text(&mut told, &detail.to_string(), |text, letter| text.push(letter));
            self.0.push(Fault { pointer: String::new(), detail: told });
        }
    }

    /// The number of faults.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All faults.
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

/// Adds a client's text, up to the limit.
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
