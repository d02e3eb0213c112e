//! A client's field sections: complete ones, which may come in several frames, and the form that h2 receives.

use std::ops::Range;

use bytes::BytesMut;

use super::super::frame::{
    CONTINUATION, END_HEADERS, END_STREAM, HEAD, HEADERS, Head, MOST, PADDED, WITH_PRIORITY, number,
};
use super::hpack;
use crate::field_compression::Section;

/// The most frames that may continue a field section, as in h2. A client needs more only if it sends next to nothing in
/// them (CVE-2024-27316, CONTINUATION flood).
const MOST_FRAMES: u32 = 5;

/// The length of a priority, in bytes.
const PRIORITY: usize = 5;

/// A complete field section.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldSection {
    pub stream: u32,
    /// Whether its stream ends with it.
    pub ends: bool,
    priority: Option<[u8; PRIORITY]>,
    block: Block,
}

/// Where its lines are.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    /// In the frame that it came in, from start to end.
    Frame(Range<usize>),
    /// Collected from several frames.
    Collected(Vec<u8>),
}

impl FieldSection {
    /// Reads the start of a field section from a HEADERS frame. None if it is malformed.
    pub fn begin(head: Head, frame: &[u8]) -> Option<Self> {
        let (mut start, mut end) = (HEAD, head.whole());
        if head.has(PADDED) {
            end = end.checked_sub((*frame.get(start)?).into())?;
            start += 1;
        }
        let mut priority = None;
        if head.has(WITH_PRIORITY) {
            priority = Some(*frame.get(start..)?.first_chunk()?);
            start += PRIORITY;
        }
        let block = Block::Frame(start..end);
        let section = Self { stream: head.stream, ends: head.has(END_STREAM), priority, block };
        (head.stream > 0 && start <= end).then_some(section)
    }

    /// Its lines. `frame` is its frame, if it came in one.
    pub fn block<'a>(&'a self, frame: &'a [u8]) -> &'a [u8] {
        match &self.block {
            Block::Frame(range) => frame.get(range.clone()).unwrap_or_default(),
            Block::Collected(block) => block,
        }
    }

    /// Whether its stream depends on itself, which h2 refuses.
    pub fn depends_on_itself(&self) -> bool {
        self.priority.is_some_and(|priority| number(&priority, 0) == Some(self.stream))
    }

    /// Appends it in the form for h2: as frames of these lines, which refer to no table.
    pub fn write(&self, lines: &Section, out: &mut BytesMut) {
        let mut payload = Vec::new();
        payload.extend(self.priority.iter().flatten());
        lines.lines().for_each(|(name, value)| hpack::line(&mut payload, name, value));
        let mut flags = if self.ends { END_STREAM } else { 0 };
        if self.priority.is_some() {
            flags |= WITH_PRIORITY;
        }
        let mut head = Head { length: 0, kind: HEADERS, flags, stream: self.stream };
        let mut rest = &payload[..];
        loop {
            let part;
            (part, rest) = rest.split_at(rest.len().min(MOST));
            head.length = part.len();
            if rest.is_empty() {
                head.flags |= END_HEADERS;
            }
            out.extend_from_slice(&head.bytes());
            out.extend_from_slice(part);
            if rest.is_empty() {
                return;
            }
            head = Head { length: 0, kind: CONTINUATION, flags: 0, ..head };
        }
    }
}

/// A field section that continues in the next frame.
#[derive(Debug)]
pub struct Open {
    section: FieldSection,
    block: Vec<u8>,
    /// How many frames have continued it.
    frames: u32,
}

impl Open {
    /// Starts with this frame.
    pub fn new(section: FieldSection, frame: &[u8]) -> Self {
        let block = section.block(frame).to_vec();
        Self { section, block, frames: 0 }
    }

    /// The stream's number.
    pub fn stream(&self) -> u32 {
        self.section.stream
    }

    /// Adds a frame. Returns false if there are more than `most` bytes, or too many frames.
    pub fn extend(&mut self, payload: &[u8], ends: bool, most: usize) -> bool {
        self.block.extend_from_slice(payload);
        self.frames += u32::from(!ends);
        self.block.len() <= most && self.frames <= MOST_FRAMES
    }

    /// The section, which is now complete.
    pub fn into_section(self) -> FieldSection {
        FieldSection { block: Block::Collected(self.block), ..self.section }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(flags: u8, stream: u32, payload: &[u8]) -> Option<(FieldSection, Vec<u8>)> {
        let head = Head { length: payload.len(), kind: HEADERS, flags, stream };
        let frame = [&head.bytes()[..], payload].concat();
        Some((FieldSection::begin(head, &frame)?, frame))
    }

    #[test]
    fn padding_and_priority_are_beside_the_lines() {
        for (flags, payload, block) in [
            (0, &b"\x82\x84"[..], &b"\x82\x84"[..]),
            (0, b"", b""),
            (PADDED, b"\0\x82", b"\x82"),
            (PADDED, b"\x02\x82zz", b"\x82"),
            (PADDED, b"\x02zz", b""),
            (WITH_PRIORITY, b"\x80\0\0\x01\x0f\x82", b"\x82"),
            (PADDED | WITH_PRIORITY, b"\x01\0\0\0\x01\x0f\x82z", b"\x82"),
        ] {
            let (section, frame) = begin(flags, 7, payload).expect("it is whole");
            assert_eq!(section.block(&frame), block, "{payload:x?}");
            assert!(!section.depends_on_itself() && !section.ends);
        }
        let (section, _) = begin(WITH_PRIORITY | END_STREAM, 1, b"\x80\0\0\x01\x0f").expect("it is whole");
        assert!(section.depends_on_itself() && section.ends);
    }

    #[test]
    fn what_is_malformed_begins_nothing() {
        for (flags, stream, payload) in [
            (0, 0, &b"\x82"[..]),
            (PADDED, 1, b""),
            (PADDED, 1, b"\x01"),
            (PADDED, 1, b"\x03zz"),
            (WITH_PRIORITY, 1, b"\0\0\0\0"),
            (PADDED | WITH_PRIORITY, 1, b"\x02\0\0\0\x03\x0fz"),
        ] {
            assert!(begin(flags, stream, payload).is_none(), "{payload:x?}");
        }
    }

    #[test]
    fn h2_is_given_lines_without_a_table_in_frames_of_their_length() {
        let (section, frame) =
            begin(WITH_PRIORITY | PADDED | END_STREAM | END_HEADERS, 7, b"\x01\0\0\0\x01\x0f\x82z")
                .expect("it is whole");
        let (mut lines, mut out) = (Section::new(), BytesMut::new());
        let mut decoder = hpack::Decoder::default();
        assert_eq!(decoder.read(&mut lines, section.block(&frame), 1000), Ok(true));
        section.write(&lines, &mut out);
        let payload = b"\0\0\0\x01\x0f\0\x07:method\x03GET";
        let flags = WITH_PRIORITY | END_STREAM | END_HEADERS;
        let head = Head { length: payload.len(), kind: HEADERS, flags, stream: 7 };
        assert_eq!(out, [&head.bytes()[..], payload].concat());

        let (section, _) = begin(0, 9, b"").expect("it is whole");
        out.clear();
        let mut lines = Section::new();
        lines.clear(1 << 20);
        let name = lines.copy(b"name").expect("it is short");
        let value = lines.copy(&vec![b'v'; 2 * MOST]).expect("it is short");
        lines.push(name, value).expect("there is room");
        section.write(&lines, &mut out);
        let mut frames = Vec::new();
        let mut rest = &out[..];
        while let Some(head) = Head::first(rest) {
            frames.push((head.kind, head.flags, head.stream, head.length));
            rest = &rest[head.whole()..];
        }
        // The line's first byte, and the lengths of name and value.
        let last = 1 + 1 + 4 + 4;
        assert_eq!(
            frames,
            [(HEADERS, 0, 9, MOST), (CONTINUATION, 0, 9, MOST), (CONTINUATION, END_HEADERS, 9, last)]
        );
        assert!(rest.is_empty());
        // A section without lines.
        out.clear();
        section.write(&Section::new(), &mut out);
        assert_eq!(Head::first(&out), Some(Head { length: 0, kind: HEADERS, flags: END_HEADERS, stream: 9 }));
    }

    #[test]
    fn a_section_in_several_frames_has_a_bound() {
        let open = || {
            let (section, frame) = begin(END_STREAM, 1, b"ab").expect("it is whole");
            Open::new(section, &frame)
        };
        let mut whole = open();
        assert!(whole.extend(b"cd", false, 5) && whole.extend(b"e", true, 5));
        let section = whole.into_section();
        assert_eq!((section.block(b""), section.ends, section.stream), (&b"abcde"[..], true, 1));
        assert!(!open().extend(b"cdef", true, 5));
        let mut endless = open();
        assert_eq!((0..).take_while(|_| endless.extend(b"", false, 5)).count(), MOST_FRAMES as usize);
    }
}
