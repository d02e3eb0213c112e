//! Tracks where frames start and end in a stream (RFC 9114, section 7.1).

/// A frame's type and length: two integers of up to 8 bytes (RFC 9000, section 16).
const HEAD: usize = 16;
/// The only type whose payload is passed on as it arrives (RFC 9114, section 7.2.1).
const DATA: u64 = 0x00;
/// The type of a stream that carries a push (RFC 9114, section 6.2.2).
const PUSH: u64 = 0x01;
/// The type of a stream that carries frames (RFC 9114, section 6.2.1).
const CONTROL: u64 = 0x00;

/// Follows the frames of one stream.
#[derive(Debug)]
pub(super) struct Frames {
    limit: u64,
    at: At,
    head: [u8; HEAD],
    filled: usize,
}

#[derive(Debug, PartialEq)]
enum At {
    /// The type of a unidirectional stream.
    StreamType,
    /// A frame's type and length.
    Head,
    /// This many bytes before the end of a frame.
    Payload(u64),
    /// Bytes without frames.
    Opaque,
}

/// What a client must not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// A frame other than DATA is longer than allowed.
    TooLong,
    /// The stream ends within a frame.
    Truncated,
    /// The stream is for a push, which only servers open.
    Push,
}

impl Frames {
    /// A request's stream. Only DATA frames may be longer than `limit` bytes.
    pub(super) fn request(limit: u64) -> Self {
        Self { limit, at: At::Head, head: [0; HEAD], filled: 0 }
    }

    /// A unidirectional stream, which starts with its type.
    pub(super) fn unidirectional(limit: u64) -> Self {
        Self { at: At::StreamType, ..Self::request(limit) }
    }

    /// Continues with these bytes.
    pub(super) fn see(&mut self, mut data: &[u8]) -> Result<(), Violation> {
        while let [first, rest @ ..] = data {
            match &mut self.at {
                At::Opaque => return Ok(()),
                At::Payload(left) => {
                    let skipped = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
                    *left -= skipped as u64;
                    if *left == 0 {
                        self.at = At::Head;
                    }
                    data = &data[skipped..];
                    continue;
                }
                At::StreamType | At::Head => {}
            }
            self.head[self.filled] = *first;
            self.filled += 1;
            data = rest;
            self.decode()?;
        }
        Ok(())
    }

    /// The client has sent everything.
    pub(super) fn end(&self) -> Result<(), Violation> {
        match self.at {
            // RFC 9114, section 6.2: a stream may end before its type is known.
            At::Opaque | At::StreamType => Ok(()),
            At::Head if self.filled == 0 => Ok(()),
            At::Head | At::Payload(_) => Err(Violation::Truncated),
        }
    }

    /// Decides what follows if the head is complete.
    fn decode(&mut self) -> Result<(), Violation> {
        let Some((kind, rest)) = varint(&self.head[..self.filled]) else { return Ok(()) };
        self.at = if self.at == At::StreamType {
            match kind {
                PUSH => return Err(Violation::Push),
                CONTROL => At::Head,
                _ => At::Opaque,
            }
        } else {
            let Some((length, _)) = varint(rest) else { return Ok(()) };
            if kind != DATA && length > self.limit {
                return Err(Violation::TooLong);
            }
            match length {
                0 => At::Head,
                _ => At::Payload(length),
            }
        };
        self.filled = 0;
        Ok(())
    }
}

/// The integer at the start, and the rest. None if it is incomplete.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (value, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    // The two highest bits of the first byte give the length.
    let bits = (1_u64 << (8 * (bytes.len() - rest.len()) - 2)) - 1;
    Some((value & bits, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `stream` in one piece and byte by byte, with the same result.
    fn judge(new: fn(u64) -> Frames, stream: &[u8]) -> Result<(), Violation> {
        let mut whole = new(100);
        let at_once = whole.see(stream).and_then(|()| whole.end());
        let mut slow = new(100);
        let bytewise = stream.chunks(1).try_for_each(|byte| slow.see(byte)).and_then(|()| slow.end());
        assert_eq!(at_once, bytewise, "{stream:x?}");
        at_once
    }

    #[test]
    fn integers_have_four_lengths() {
        // RFC 9000, appendix A.1.
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0x40, 0x25], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            assert_eq!(varint(bytes), Some((value, &[][..])), "{bytes:x?}");
            assert_eq!(varint(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn frames_of_requests_are_followed() {
        for (stream, expected) in [
            (&[][..], Ok(())),
            (&[0x01, 0x02, 9, 9], Ok(())),
            (&[0x01, 0x02, 9, 9, 0x00, 0x01, 9, 0x21, 0x00], Ok(())),
            (&[0x01], Err(Violation::Truncated)),
            (&[0x01, 0x02, 9], Err(Violation::Truncated)),
            (&[0x01, 0x01, 9, 0x00, 0x05, 9, 9], Err(Violation::Truncated)),
            (&[0x01, 0x40, 0x65], Err(Violation::TooLong)),
            (&[0x21, 0xc0, 0, 0, 0, 1, 0, 0, 0], Err(Violation::TooLong)),
            // DATA may have any length, but must not end early.
            (&[0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 9], Err(Violation::Truncated)),
        ] {
            assert_eq!(judge(Frames::request, stream), expected, "{stream:x?}");
        }
    }

    #[test]
    fn unidirectional_streams_have_a_type() {
        for (stream, expected) in [
            (&[][..], Ok(())),
            (&[0x40], Ok(())),
            (&[0x00, 0x04, 0x00], Ok(())),
            (&[0x00, 0x04, 0x40, 0x65], Err(Violation::TooLong)),
            (&[0x01, 0x00], Err(Violation::Push)),
            // The encoder's stream, and one of an unknown type.
            (&[0x02, 0x3f, 0xff, 0xff], Ok(())),
            (&[0x21, 0xff, 0xff], Ok(())),
        ] {
            assert_eq!(judge(Frames::unidirectional, stream), expected, "{stream:x?}");
        }
    }
}
