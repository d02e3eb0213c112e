//! The lines of a field section.

use super::{huffman, primitives};

/// A name or a value.
#[derive(Clone, Copy)]
pub enum Text {
    /// From the static table.
    Static(&'static str),
    /// In the buffer, from start to end.
    Read(u32, u32),
}

impl Text {
    fn of(self, decoded: &[u8]) -> &[u8] {
        match self {
            Self::Static(text) => text.as_bytes(),
            Self::Read(start, end) => &decoded[start as usize..end as usize],
        }
    }
}

/// The lines of a field section, in reusable memory.
#[derive(Default)]
pub struct Section {
    lines: Vec<(Text, Text)>,
    /// Text that is not from the static table.
    decoded: Vec<u8>,
    /// How many more bytes are allowed, as RFC 9113, section 6.5.2 and RFC 9114, section 4.2.2 count them.
    left: usize,
}

impl Section {
    /// A section without lines.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), decoded: Vec::new(), left: 0 }
    }

    /// Removes all lines. New ones may have `most` bytes together: names, values and 32 bytes per line.
    pub fn clear(&mut self, most: usize) {
        self.decoded.clear();
        self.lines.clear();
        self.left = most;
    }

    /// Reads a string (RFC 7541, section 5.2) whose length has this many bits in the first byte. Returns it and the
    /// rest.
    pub fn text<'b>(&mut self, bytes: &'b [u8], bits: u32) -> Option<(Text, &'b [u8])> {
        let coded = bytes.first()? >> bits & 1 == 1;
        let (length, rest) = primitives::integer(bytes, bits)?;
        let (text, rest) = rest.split_at_checked(length)?;
        let start = self.decoded.len();
        if coded {
            huffman::decode(text, &mut self.decoded)?;
        } else {
            self.decoded.extend_from_slice(text);
        }
        Some((Text::Read(u32::try_from(start).ok()?, u32::try_from(self.decoded.len()).ok()?), rest))
    }

    /// Adds a copy of a text.
    pub fn copy(&mut self, text: &[u8]) -> Option<Text> {
        let start = self.decoded.len();
        self.decoded.extend_from_slice(text);
        Some(Text::Read(u32::try_from(start).ok()?, u32::try_from(self.decoded.len()).ok()?))
    }

    /// The bytes of a text in this section.
    pub fn bytes(&self, text: Text) -> &[u8] {
        text.of(&self.decoded)
    }

    /// Appends a line. None if it is the first that exceeds the limit.
    pub fn push(&mut self, name: Text, value: Text) -> Option<()> {
        let left = self.left.checked_sub(size(self.bytes(name), self.bytes(value)));
        self.lines.push((name, value));
        self.left = left?;
        Some(())
    }

    /// The length of its text.
    pub fn end(&self) -> usize {
        self.decoded.len()
    }

    /// Removes text added since [`end`](Self::end) returned this, if no line uses it.
    pub fn forget(&mut self, end: usize) {
        self.decoded.truncate(end);
    }

    /// Its lines, in order.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let decoded = &self.decoded;
        self.lines.iter().map(move |(name, value)| (name.of(decoded), value.of(decoded)))
    }
}

/// The size of a line (RFC 7541, section 4.1).
pub fn size(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + 32
}
