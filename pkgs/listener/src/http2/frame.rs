//! The parts of frames (RFC 9113, section 4) that are read outside h2.

/// Bytes of the head of a frame.
pub const HEAD: usize = 9;

/// The longest payload in either direction: neither side announces more.
pub const MOST: usize = 16 * 1024;

// Types.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

// Flags.
pub const ACK: u8 = 0x1;
pub const END_STREAM: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
pub const PADDED: u8 = 0x8;
pub const WITH_PRIORITY: u8 = 0x20;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Of the payload.
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Head {
    /// Reads a head.
    #[inline]
    pub fn of(&[a, b, c, kind, flags, id @ ..]: &[u8; HEAD]) -> Self {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The highest bit is reserved.
        Self { length, kind, flags, stream: u32::from_be_bytes(id) & !(1 << 31) }
    }

    /// Reads the head at the start of `bytes`.
    #[inline]
    pub fn first(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(Self::of)
    }

    /// The head as bytes.
    pub fn bytes(self) -> [u8; HEAD] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Whether it has all of these flags.
    #[inline]
    pub fn has(self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The frame's length, in bytes.
    #[inline]
    pub fn whole(self) -> usize {
        HEAD + self.length
    }

    /// Whether a field section continues after it.
    #[inline]
    pub fn leaves_section_open(self) -> bool {
        matches!(self.kind, HEADERS | PUSH_PROMISE) && !self.has(END_HEADERS)
    }
}

/// The 31-bit number at `at` in a payload.
pub fn number(payload: &[u8], at: usize) -> Option<u32> {
    let bytes = payload.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes) & !(1 << 31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = Head { length: 0x01_02_03, kind: HEADERS, flags: END_HEADERS, stream: 0x0405_0607 };
        assert_eq!(head.bytes(), *b"\x01\x02\x03\x01\x04\x04\x05\x06\x07");
        assert_eq!(Head::first(&head.bytes()), Some(head));
        assert_eq!(Head::first(b"\x01\x02\x03\x01\x04\x84\x05\x06\x07z"), Some(head), "a bit means nothing");
        assert_eq!(Head::first(b"\x01\x02\x03\x01\x04\x84\x05\x06"), None, "it is not whole");
        assert_eq!((number(b"\x80\x00\x00\x07", 0), number(b"\0\0\0", 0)), (Some(7), None));
    }
}
