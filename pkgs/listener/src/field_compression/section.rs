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

/// The most lines of a request that are read here; browsers send some twenty.
pub const MAX_LINES: usize = 48;

/// The lines of a field section; to be used again.
pub struct Section {
    lines: [(Text, Text); MAX_LINES],
    length: usize,
    /// What is not of the static table.
    decoded: Vec<u8>,
    /// How many bytes there may yet be, as RFC 9113, section 6.5.2 and RFC 9114, section 4.2.2 count them.
    left: usize,
}

impl Default for Section {
    fn default() -> Self {
        Self::new()
    }
}

impl Section {
    /// One without lines.
    pub const fn new() -> Self {
        let none = Text::Static("");
        Self { lines: [(none, none); MAX_LINES], length: 0, decoded: Vec::new(), left: 0 }
    }

    /// Forgets its lines; there may be new ones of at most so many bytes together: names, values and 32 bytes a line.
    pub fn clear(&mut self, most: usize) {
        self.decoded.clear();
        (self.length, self.left) = (0, most);
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

    /// Appends a line; none where it is one too many, or too large.
    pub fn push(&mut self, name: Text, value: Text) -> Option<()> {
        let size = name.of(&self.decoded).len() + value.of(&self.decoded).len() + 32;
        self.left = self.left.checked_sub(size)?;
        *self.lines.get_mut(self.length)? = (name, value);
        self.length += 1;
        Some(())
    }

    /// Its lines, in order.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let decoded = &self.decoded;
        self.lines[..self.length].iter().map(move |(name, value)| (name.of(decoded), value.of(decoded)))
    }
}
