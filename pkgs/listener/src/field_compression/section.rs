//! The lines of a field section.

use super::{huffman, primitives};

/// A name or a value.
#[derive(Clone, Copy)]
pub enum Text {
    /// Of a static table.
    Static(&'static str),
    /// In the buffer, from where to where.
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

/// The lines of a field section; to be used again.
#[derive(Default)]
pub struct Section {
    lines: Vec<(Text, Text)>,
    /// What is not of the static table.
    decoded: Vec<u8>,
    /// How many bytes there may yet be, as RFC 9113, section 6.5.2 and RFC 9114, section 4.2.2 count them.
    left: usize,
}

impl Section {
    /// One without lines.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), decoded: Vec::new(), left: 0 }
    }

    /// Forgets its lines; there may be new ones of at most so many bytes together: names, values and 32 bytes a line.
    pub fn clear(&mut self, most: usize) {
        self.decoded.clear();
        self.lines.clear();
        self.left = most;
    }

    /// Reads a string (RFC 7541, section 5.2), whose length has so many bits in the first byte; that, and what follows it.
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

    /// Copies a text that is of neither.
    pub fn copy(&mut self, text: &[u8]) -> Option<Text> {
        let start = self.decoded.len();
        self.decoded.extend_from_slice(text);
        Some(Text::Read(u32::try_from(start).ok()?, u32::try_from(self.decoded.len()).ok()?))
    }

    /// A text that was read into it.
    pub fn bytes(&self, text: Text) -> &[u8] {
        text.of(&self.decoded)
    }

    /// Appends a line; none where it is the first that has no room.
    pub fn push(&mut self, name: Text, value: Text) -> Option<()> {
        let left = self.left.checked_sub(size(self.bytes(name), self.bytes(value)));
        self.lines.push((name, value));
        self.left = left?;
        Some(())
    }

    /// How much text it has.
    pub fn end(&self) -> usize {
        self.decoded.len()
    }

    /// Forgets what text came since [`end`](Self::end) was so much, of which no line has any.
    pub fn forget(&mut self, end: usize) {
        self.decoded.truncate(end);
    }

    /// Its lines, in order.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let decoded = &self.decoded;
        self.lines.iter().map(move |(name, value)| (name.of(decoded), value.of(decoded)))
    }
}

/// How a line counts (RFC 7541, section 4.1).
pub fn size(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + 32
}
