//! Divides a stream into pieces for h3, by its frames (RFC 9114, section 7.1).
//!
//! h3 keeps every piece of an unfinished frame, together with the datagram that it is a part of, and adds up their
//! lengths whenever another one arrives. Where a piece has several frames, it even reads ahead of what it is asked for.
//! So it gets one whole frame at a time, which is a copy if the frame arrived in parts. Of DATA it gets the head, and
//! then the payload as it arrives.
//!
//! It gets no GOAWAY of a client. These name pushes, of which there are none (RFC 9114, section 5.2), but h3 takes them
//! for the end of all requests.

use bytes::Bytes;

use super::qpack_streams::QpackStream;

/// A frame's type and length: two integers of up to 8 bytes (RFC 9000, section 16).
const HEAD: usize = 16;
/// The only type whose payload is passed on as it arrives (RFC 9114, section 7.2.1).
const DATA: u64 = 0x00;
/// The types of the first frames of requests and control streams, and of those that are checked here (RFC 9114, section
/// 7.2).
const HEADERS: u64 = 0x01;
const CANCEL_PUSH: u64 = 0x03;
const SETTINGS: u64 = 0x04;
const PUSH_PROMISE: u64 = 0x05;
const GOAWAY: u64 = 0x07;
const MAX_PUSH_ID: u64 = 0x0d;
/// The type of a stream that carries a push (RFC 9114, section 6.2.2).
const PUSH: u64 = 0x01;
/// The type of a stream that carries frames (RFC 9114, section 6.2.1).
const CONTROL: u64 = 0x00;
/// The types of streams of QPACK (RFC 9204, section 4.2).
const ENCODER: u64 = 0x02;
const DECODER: u64 = 0x03;

/// A piece of a body that is shorter than this is copied: otherwise it would keep a whole datagram for as long as the
/// service keeps the piece, while only the piece counts as a part of the body.
const SMALL_BYTES: usize = 1024;

/// Follows the frames of one stream.
#[derive(Debug)]
pub(super) struct Frames {
    limit: u64,
    at: At,
    /// The start of a head, or of a stream's type, that has arrived in part.
    head: [u8; HEAD],
    filled: usize,
    /// The start of a frame that has arrived in part. It grows as the frame arrives, up to the limit.
    partial: Vec<u8>,
    /// Whether it is the control stream.
    is_control: bool,
    /// Whether HEADERS or SETTINGS have come, as one of them has to before other frames. If not, h3 says what is wrong.
    begun: bool,
    /// The push that the last GOAWAY has named.
    goaway: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// The type of a unidirectional stream.
    StreamType,
    /// A frame's type and length.
    Head,
    /// This many bytes before the end of a DATA frame.
    Data(u64),
    /// The same of a frame that is copied.
    Copied(u64),
    /// The same of a frame that is dropped.
    Dropped(u64),
    /// Instructions of QPACK.
    Qpack(QpackStream),
    /// Bytes without frames.
    Opaque,
}

/// A frame's type and length, and the bytes that these take.
struct Head {
    kind: u64,
    length: u64,
    size: usize,
}

/// What h3 gets of a frame.
enum Share {
    /// Its head, and its payload as that arrives.
    Parts,
    /// All of it at once.
    Whole,
    /// Nothing: it is checked here.
    Checked,
    Nothing,
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
    /// A frame does not have the integer of its type, or has more than that.
    Malformed,
    /// A GOAWAY names a later push than the one before it.
    Growing,
}

impl Frames {
    /// A request's stream. Only DATA frames may be longer than `limit` bytes.
    pub(super) fn request(limit: u64) -> Self {
        Self {
            limit,
            at: At::Head,
            head: [0; HEAD],
            filled: 0,
            partial: Vec::new(),
            is_control: false,
            begun: false,
            goaway: u64::MAX,
        }
    }

    /// A unidirectional stream, which starts with its type.
    pub(super) fn unidirectional(limit: u64) -> Self {
        Self { at: At::StreamType, ..Self::request(limit) }
    }

    /// Takes the next piece for h3 from what was received. None once more has to be received.
    pub(super) fn next(&mut self, received: &mut Bytes) -> Result<Option<Bytes>, Violation> {
        loop {
            match self.at {
                At::Data(0) | At::Dropped(0) => self.at = At::Head,
                At::Copied(0) => {
                    self.at = At::Head;
                    if let Some(frame) = self.complete()? {
                        return Ok(Some(frame));
                    }
                }
                _ if received.is_empty() => return Ok(None),
                At::StreamType | At::Head => {
                    if let Some(piece) = self.begin(received)? {
                        return Ok(Some(piece));
                    }
                }
                At::Data(left) => {
                    let piece = take(received, left);
                    self.at = At::Data(left - piece.len() as u64);
                    let is_small = piece.len() < SMALL_BYTES;
                    return Ok(Some(if is_small { Bytes::copy_from_slice(&piece) } else { piece }));
                }
                At::Copied(left) => {
                    let part = take(received, left);
                    self.partial.extend_from_slice(&part);
                    self.at = At::Copied(left - part.len() as u64);
                }
                At::Dropped(left) => self.at = At::Dropped(left - take(received, left).len() as u64),
                At::Qpack(_) => return Ok(None),
                At::Opaque => return Ok(Some(std::mem::take(received))),
            }
        }
    }

    /// Which stream of QPACK it is, if it is one. Then h3 gets nothing but its type.
    pub(super) fn qpack(&self) -> Option<QpackStream> {
        if let At::Qpack(stream) = self.at { Some(stream) } else { None }
    }

    /// The client has sent everything.
    pub(super) fn end(&self) -> Result<(), Violation> {
        match self.at {
            // RFC 9114, section 6.2: a stream may end before its type is known.
            At::Opaque | At::Qpack(_) | At::StreamType => Ok(()),
            At::Head if self.filled == 0 => Ok(()),
            At::Head | At::Data(_) | At::Copied(_) | At::Dropped(_) => Err(Violation::Truncated),
        }
    }

    /// Reads a head, or a stream's type. Returns what h3 gets of it at once.
    fn begin(&mut self, received: &mut Bytes) -> Result<Option<Bytes>, Violation> {
        if self.at == At::Head
            && self.filled == 0
            && let Some(head) = Head::read(received)
        {
            // Nearly every frame other than DATA arrives whole, and needs no copy.
            match self.share(&head)? {
                Share::Parts => {
                    self.at = At::Data(head.length);
                    return Ok(Some(received.split_to(head.size)));
                }
                Share::Whole if head.length <= (received.len() - head.size) as u64 => {
                    let frame = received.split_to(head.size + head.length as usize);
                    head.check(&frame[head.size..])?;
                    return Ok(Some(frame));
                }
                Share::Whole | Share::Checked | Share::Nothing => {}
            }
        }
        self.head[self.filled] = take(received, 1)[0];
        self.filled += 1;
        if self.at == At::StreamType {
            let Some((kind, _)) = varint(&self.head[..self.filled]) else { return Ok(None) };
            self.is_control = kind == CONTROL;
            self.at = match kind {
                PUSH => return Err(Violation::Push),
                CONTROL => At::Head,
                ENCODER => At::Qpack(QpackStream::Encoder),
                DECODER => At::Qpack(QpackStream::Decoder),
                _ => At::Opaque,
            };
        } else {
            let Some(head) = Head::read(&self.head[..self.filled]) else { return Ok(None) };
            self.at = match self.share(&head)? {
                Share::Parts => At::Data(head.length),
                Share::Whole | Share::Checked => {
                    self.partial.extend_from_slice(&self.head[..self.filled]);
                    At::Copied(head.length)
                }
                Share::Nothing => At::Dropped(head.length),
            };
        }
        let length = std::mem::take(&mut self.filled);
        let is_passed = matches!(self.at, At::Head | At::Data(_) | At::Qpack(_) | At::Opaque);
        Ok(is_passed.then(|| Bytes::copy_from_slice(&self.head[..length])))
    }

    fn share(&mut self, head: &Head) -> Result<Share, Violation> {
        if head.kind != DATA && head.length > self.limit {
            return Err(Violation::TooLong);
        }
        let share = match head.kind {
            // h3 would take an empty one for the end of the body. Before the head, none is allowed.
            DATA if head.length == 0 && !self.is_control && self.begun => Share::Nothing,
            DATA => Share::Parts,
            GOAWAY if self.is_control && self.begun => Share::Checked,
            // RFC 9114, section 7.2, and the types of HTTP/2 that section 7.2.8 forbids.
            0x01..=0x09 | 0x0d => Share::Whole,
            // RFC 9114, section 9: types that nobody knows are ignored.
            _ => Share::Nothing,
        };
        self.begun |= matches!(head.kind, HEADERS | SETTINGS);
        Ok(share)
    }

    /// A frame was copied. Returns it if it is for h3.
    fn complete(&mut self) -> Result<Option<Bytes>, Violation> {
        let frame = std::mem::take(&mut self.partial);
        if let Some(head) = Head::read(&frame) {
            let payload = &frame[head.size..];
            head.check(payload)?;
            if head.kind == GOAWAY
                && self.is_control
                && self.begun
                && let Some((push, _)) = varint(payload)
            {
                let last = std::mem::replace(&mut self.goaway, push);
                return if push > last { Err(Violation::Growing) } else { Ok(None) };
            }
        }
        Ok(Some(frame.into()))
    }
}

impl Head {
    /// The head at the start of `bytes`. None if it is incomplete.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = varint(bytes)?;
        let (length, rest) = varint(rest)?;
        Some(Self { kind, length, size: bytes.len() - rest.len() })
    }

    /// Checks the payload of a whole frame that h3 may get. Where the integer is incomplete, h3 would wait for the rest
    /// of it, and keep all that follows. What comes after the integer, h3 would take for the next frame.
    fn check(&self, payload: &[u8]) -> Result<(), Violation> {
        let is_sound = match self.kind {
            CANCEL_PUSH | GOAWAY | MAX_PUSH_ID => matches!(varint(payload), Some((_, []))),
            PUSH_PROMISE => varint(payload).is_some(),
            _ => true,
        };
        if is_sound { Ok(()) } else { Err(Violation::Malformed) }
    }
}

/// Takes `most` bytes, or all if there are fewer.
fn take(received: &mut Bytes, most: u64) -> Bytes {
    let all = received.len();
    received.split_to(usize::try_from(most).map_or(all, |most| most.min(all)))
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

    /// The pieces for h3 of a stream that arrives in parts of this many bytes.
    fn divide(mut frames: Frames, stream: &[u8], step: usize) -> Result<Vec<Bytes>, Violation> {
        let mut pieces = Vec::new();
        for part in stream.chunks(step) {
            let mut received = Bytes::copy_from_slice(part);
            while let Some(piece) = frames.next(&mut received)? {
                assert!(!piece.is_empty(), "{stream:x?}");
                pieces.push(piece);
            }
            assert!(received.is_empty() || frames.qpack().is_some(), "{stream:x?}");
        }
        frames.end().map(|()| pieces)
    }

    /// What h3 gets of `stream`, in one piece and byte by byte, with the same result.
    fn judge(new: fn(u64) -> Frames, stream: &[u8]) -> Result<Vec<u8>, Violation> {
        let [at_once, bytewise] =
            [stream.len().max(1), 1].map(|step| divide(new(100), stream, step).map(|pieces| pieces.concat()));
        assert_eq!(at_once, bytewise, "{stream:x?}");
        at_once
    }

    /// What a stream has, and what of it is for h3.
    type Case = (&'static [u8], Result<&'static [u8], Violation>);

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
        let cases: &[Case] = &[
            (&[], Ok(&[])),
            (&[0x01, 0x02, 9, 9], Ok(&[0x01, 0x02, 9, 9])),
            (&[0x01, 0x02, 9, 9, 0x00, 0x01, 9, 0x21, 0x00], Ok(&[0x01, 0x02, 9, 9, 0x00, 0x01, 9])),
            (&[0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 9], Ok(&[0x01, 0x00, 0x00, 0x01, 9])),
            // Types that nobody knows, one of them a stream's of WebTransport.
            (&[0x21, 0x02, 9, 9, 0x01, 0x01, 9, 0x40, 0x41, 0x01, 9], Ok(&[0x01, 0x01, 9])),
            // Those that h3 closes the connection for.
            (&[0x08, 0x00], Ok(&[0x08, 0x00])),
            (&[0x00, 0x00, 0x01, 0x00], Ok(&[0x00, 0x00, 0x01, 0x00])),
            (&[0x01, 0x00, 0x07, 0x01, 0], Ok(&[0x01, 0x00, 0x07, 0x01, 0])),
            (&[0x01, 0x00, 0x05, 0x02, 4, 9], Ok(&[0x01, 0x00, 0x05, 0x02, 4, 9])),
            // Those whose integer is missing, incomplete, or not all.
            (&[0x01, 0x00, 0x03, 0x00], Err(Violation::Malformed)),
            (&[0x01, 0x00, 0x05, 0x01, 0x40], Err(Violation::Malformed)),
            (&[0x01, 0x00, 0x0d, 0x02, 4, 4], Err(Violation::Malformed)),
            (&[0x01], Err(Violation::Truncated)),
            (&[0x01, 0x02, 9], Err(Violation::Truncated)),
            (&[0x21, 0x02, 9], Err(Violation::Truncated)),
            (&[0x01, 0x01, 9, 0x00, 0x05, 9, 9], Err(Violation::Truncated)),
            (&[0x01, 0x40, 0x65], Err(Violation::TooLong)),
            (&[0x21, 0xc0, 0, 0, 0, 1, 0, 0, 0], Err(Violation::TooLong)),
            // DATA may have any length, but must not end early.
            (&[0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 9], Err(Violation::Truncated)),
        ];
        for &(stream, expected) in cases {
            assert_eq!(judge(Frames::request, stream), expected.map(<[u8]>::to_vec), "{stream:x?}");
        }
    }

    #[test]
    fn unidirectional_streams_have_a_type() {
        let cases: &[Case] = &[
            (&[], Ok(&[])),
            (&[0x40], Ok(&[])),
            (&[0x00, 0x04, 0x00], Ok(&[0x00, 0x04, 0x00])),
            (&[0x40, 0x00, 0x04, 0x00], Ok(&[0x40, 0x00, 0x04, 0x00])),
            (&[0x00, 0x04, 0x40, 0x65], Err(Violation::TooLong)),
            (&[0x01, 0x00], Err(Violation::Push)),
            // What is not for h3, unless SETTINGS are missing.
            (&[0x00, 0x04, 0x00, 0x07, 0x01, 4, 0x07, 0x02, 0x40, 4], Ok(&[0x00, 0x04, 0x00])),
            (&[0x00, 0x07, 0x01, 4], Ok(&[0x00, 0x07, 0x01, 4])),
            (&[0x00, 0x04, 0x00, 0x00, 0x00], Ok(&[0x00, 0x04, 0x00, 0x00, 0x00])),
            (&[0x00, 0x04, 0x00, 0x07, 0x01, 4, 0x07, 0x01, 8], Err(Violation::Growing)),
            (&[0x00, 0x04, 0x00, 0x07, 0x00], Err(Violation::Malformed)),
            (&[0x00, 0x04, 0x00, 0x07, 0x01, 0x40], Err(Violation::Malformed)),
            (&[0x00, 0x04, 0x00, 0x07, 0x02, 4, 4], Err(Violation::Malformed)),
            (&[0x00, 0x04, 0x00, 0x07, 0x02, 0x40], Err(Violation::Truncated)),
            (&[0x00, 0x04, 0x00, 0x0d, 0x02, 0x40, 4], Ok(&[0x00, 0x04, 0x00, 0x0d, 0x02, 0x40, 4])),
            (&[0x00, 0x04, 0x00, 0x0d, 0x00], Err(Violation::Malformed)),
            (&[0x00, 0x04, 0x00, 0x03, 0x01, 0x40], Err(Violation::Malformed)),
            (&[0x00, 0x04, 0x00, 0x03, 0x02, 4, 4], Err(Violation::Malformed)),
            // Of QPACK, and one of an unknown type.
            (&[0x02, 0x3f, 0xff, 0xff], Ok(&[0x02])),
            (&[0x40, 0x03, 0x40], Ok(&[0x40, 0x03])),
            (&[0x21, 0xff, 0xff], Ok(&[0x21, 0xff, 0xff])),
        ];
        for &(stream, expected) in cases {
            assert_eq!(judge(Frames::unidirectional, stream), expected.map(<[u8]>::to_vec), "{stream:x?}");
        }
    }

    /// A head of this many bytes.
    fn head(length: u16) -> Vec<u8> {
        let [first, second] = (length | 0x4000).to_be_bytes();
        [&[0x01, first, second][..], &vec![9; length.into()]].concat()
    }

    #[test]
    fn h3_gets_a_frame_at_a_time_however_they_arrive() {
        let head = head(10_000);
        let data: &[u8] = &[0x00, 0x03, 1, 2, 3];
        let stream = [&head[..], data, &[0x21, 0x02, 7, 7], data, &head].concat();
        for step in [1, 2, 1_200, stream.len()] {
            let pieces = divide(Frames::request(10_000), &stream, step).expect("they are allowed");
            let (first, rest) = pieces.split_first().expect("a piece");
            let (last, bodies) = rest.split_last().expect("a piece");
            assert!(*first == head && *last == head, "in parts of {step}");
            let heads: Vec<_> = bodies.iter().filter(|piece| **piece == data[..2]).collect();
            assert_eq!((heads.len(), bodies.concat()), (2, data.repeat(2)), "in parts of {step}");
        }
    }

    #[test]
    fn what_waits_for_the_rest_of_its_frame_keeps_no_datagram() {
        let head = head(5_000);
        let mut frames = Frames::request(5_000);
        for (count, byte) in head.iter().enumerate() {
            let datagram = Bytes::from([&[*byte][..], &[0; 1_199]].concat());
            let mut received = datagram.slice(..1);
            let piece = frames.next(&mut received).expect("it is allowed");
            assert!(datagram.is_unique(), "{count}");
            assert!(frames.partial.capacity() <= 2 * (count + HEAD), "{count}");
            assert_eq!(piece.is_some(), count + 1 == head.len(), "{count}");
        }
        assert_eq!(frames.partial.capacity(), 0, "h3 has it");
    }

    #[test]
    fn whole_frames_and_large_pieces_of_bodies_are_not_copied() {
        let mut frames = Frames::request(1_000);
        let body = vec![7; 2 * SMALL_BYTES - 1];
        let datagram = Bytes::from([&head(1_000)[..], &[0x00, 0x47, 0xff], &body].concat());
        let mut received = datagram.clone();
        let mut next = |received: &mut Bytes| frames.next(received).expect("allowed").expect("a piece");
        let (head, data) = (next(&mut received), next(&mut received));
        assert_eq!((head.as_ptr(), head.len(), data.len()), (datagram.as_ptr(), 1_003, 3));
        let mut first = received.split_to(SMALL_BYTES);
        let expected = first.as_ptr();
        assert_eq!(next(&mut first).as_ptr(), expected);
        let expected = received.as_ptr();
        let second = next(&mut received);
        assert_ne!(second.as_ptr(), expected, "it is too small to keep the datagram");
        assert_eq!(second, body[SMALL_BYTES..]);
    }
}
