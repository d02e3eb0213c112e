//! Netlink messages and their attributes (`include/uapi/linux/netlink.h`, netlink(7)).
//!
//! Numbers are in the machine's own byte order. Lengths in a message are compared with the actual data. A length that
//! doesn't fit ends the reading; nothing panics.

/// Bytes of `struct nlmsghdr`: length (32 bits), kind (16), flags (16), sequence (32), port (32).
pub const HEADER: usize = 16;
/// The alignment of everything (`NLMSG_ALIGNTO`, `NLA_ALIGNTO`).
const ALIGNMENT: usize = 4;
/// Bytes of `struct nlattr`: length (16 bits), kind (16).
const ATTRIBUTE_HEADER: usize = 4;
/// `NLA_F_NESTED`: the attribute contains attributes. Families with strict checks require this flag.
const NESTED: u16 = 1 << 15;
/// `NLA_TYPE_MASK`: selects a kind without its flags.
const KIND: u16 = (1 << 14) - 1;

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its kind: a number that the family defines or, below 16, one of netlink's own.
    pub kind: u16,
    /// `NLM_F_…`.
    pub flags: u16,
    /// The request that it answers.
    pub sequence: u32,
    /// Everything after the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The attributes that follow a family's own header of this length in bytes.
    pub fn attributes(&self, header: usize) -> Attributes<'a> {
        Attributes(self.payload.get(header..).unwrap_or_default())
    }
}

/// The messages of one datagram, in order.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.0, 0)? as usize;
        let payload = self.0.get(HEADER..length)?;
        let message = Message {
            kind: u16_at(self.0, 4)?,
            flags: u16_at(self.0, 6)?,
            sequence: u32_at(self.0, 8)?,
            payload,
        };
        self.0 = behind(self.0, length);
        Some(message)
    }
}

/// Attributes, each with its kind and content.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a kind.
    pub fn get(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(its, value)| (its == kind).then_some(value))
    }

    /// A 32-bit number.
    pub fn u32(self, kind: u16) -> Option<u32> {
        u32_at(self.get(kind)?, 0)
    }

    /// A 16-bit number.
    pub fn u16(self, kind: u16) -> Option<u16> {
        u16_at(self.get(kind)?, 0)
    }

    /// A boolean in 8 bits.
    pub fn flag(self, kind: u16) -> Option<bool> {
        self.get(kind)?.first().map(|&byte| byte != 0)
    }

    /// A text up to its terminating zero.
    pub fn text(self, kind: u16) -> Option<String> {
        let bytes = self.get(kind)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// The attributes inside another attribute; empty if that is missing.
    pub fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & KIND;
        let value = self.0.get(ATTRIBUTE_HEADER..length)?;
        self.0 = behind(self.0, length);
        Some((kind, value))
    }
}

/// A message that is being written.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Begins a message with a family's own header.
    pub fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(header);
        align(&mut bytes);
        Self(bytes)
    }

    /// Adds an attribute. The length field allows less than 64 KiB; requests are far smaller.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        debug_assert!(value.len() <= usize::from(u16::MAX) - ATTRIBUTE_HEADER);
        self.0.extend_from_slice(&((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        align(&mut self.0);
        self
    }

    /// Adds a number.
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds a number if there is one.
    pub fn some_u32(self, kind: u16, value: Option<u32>) -> Self {
        match value {
            Some(value) => self.u32(kind, value),
            None => self,
        }
    }

    /// Adds a text with a terminating zero.
    pub fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that contains what `inner` writes.
    pub fn nested(mut self, kind: u16, inner: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self = self.attribute(kind | NESTED, &[]);
        self = inner(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Completes the message for sending.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

/// The 32-bit number at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 16-bit number at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The bytes after this length and its padding.
fn behind(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default()
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let bytes = Writer::new(20, 1, &[7, 1, 0, 0])
            .nested(1, |header| header.text(2, "eth0"))
            .u32(9, 4)
            .some_u32(10, None)
            .attribute(11, &[1])
            .attribute(12, &513_u16.to_ne_bytes())
            .finish(3);
        let twice = bytes.repeat(2);
        for message in Messages(&twice) {
            assert_eq!((message.kind, message.flags, message.sequence), (20, 1, 3));
            let attributes = message.attributes(4);
            assert_eq!(attributes.nested(1).text(2).as_deref(), Some("eth0"));
            assert_eq!((attributes.u32(9), attributes.u32(10)), (Some(4), None));
            assert_eq!((attributes.flag(11), attributes.u16(12)), (Some(true), Some(513)));
            assert_eq!(attributes.nested(13).count(), 0);
        }
        assert_eq!(Messages(&twice).count(), 2);
    }

    #[test]
    fn a_length_that_does_not_fit_ends_what_is_read() {
        let whole = Writer::new(20, 0, &[]).u32(1, 5).u32(2, 6).finish(1);
        for (of, lengths) in [(0, [0_u16, 15, 33]), (HEADER + 8, [0, 3, 9])] {
            for length in lengths {
                let mut bytes = whole.clone();
                bytes[of..of + 2].copy_from_slice(&length.to_ne_bytes());
                let read: Vec<_> = Messages(&bytes).map(|message| message.attributes(0).count()).collect();
                assert_eq!(read, if of == 0 { vec![] } else { vec![1] }, "{length} at {of}");
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_to_an_end(bytes: Vec<u8>, header in 0_usize..80) {
            for message in Messages(&bytes) {
                for (kind, value) in message.attributes(header) {
                    prop_assert!(kind <= KIND && value.len() <= bytes.len());
                    let _ = (Attributes(value).text(1), Attributes(value).u32(2), Attributes(value).count());
                }
            }
        }
    }
}
