//! Where h2 is in what it writes: answers from here go between its frames, and never into a field section. What it says of the
//! last stream is rewritten where that is one that was answered here.

use super::frame::{ACK, CONTINUATION, DATA, END_HEADERS, GOAWAY, HEAD, HEADERS, Head, SETTINGS, number};

/// What h2 has written so far.
#[derive(Debug, Default)]
pub struct ServerFrames {
    /// Of the head of a frame, how much there is.
    head: [u8; HEAD],
    read: usize,
    /// How much of a frame's payload is still to come.
    left: usize,
    /// Whether a field section goes on in the next frame.
    in_section: bool,
    /// Whether it has said that the connection ends.
    leaving: bool,
    /// How often it was told of settings, and has said that they apply.
    told: u32,
    applied: u32,
    /// By which of these the client has made the dynamic table smaller, where h2 has not yet said in a field section that it
    /// follows: what is sent before that has to be h2's (RFC 7541, section 4.2).
    table: Option<u32>,
}

impl ServerFrames {
    /// Whether something else may be written now.
    #[inline]
    pub fn is_between(&self) -> bool {
        self.left == 0 && self.read == 0 && !self.in_section
    }

    /// Whether it has said that the connection ends: what is asked from then on is its to refuse.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether a field section would be wrong that is not h2's.
    pub fn owes_table_size(&self) -> bool {
        self.table.is_some()
    }

    /// h2 is told of settings, which make the dynamic table smaller or do not.
    pub fn tell(&mut self, shrinks: bool) {
        self.told = self.told.wrapping_add(1);
        if shrinks {
            self.table = Some(self.told);
        }
    }

    /// How many of the bytes it wants to write there are before a frame that names a stream before `last` as the last.
    pub fn before_rewritten(&self, bytes: &[u8], last: u32) -> usize {
        if self.read > 0 {
            // That which has begun is none. The rest is looked at next time.
            return bytes.len().min(HEAD - self.read);
        }
        let mut at = self.left;
        while let Some(head) = bytes.get(at..).and_then(Head::first) {
            if head.kind == GOAWAY && number(bytes, at + HEAD).is_some_and(|named| named < last) {
                return at;
            }
            at += head.whole();
        }
        bytes.len()
    }

    /// Rewrites the GOAWAY that these bytes begin with, which is taken from h2, so that it names `last`; how long it is.
    pub fn rewrite(&mut self, bytes: &[u8], last: u32, out: &mut Vec<u8>) -> Option<usize> {
        let head = Head::first(bytes).filter(|head| head.kind == GOAWAY)?;
        let (_, rest) = bytes.get(HEAD..head.whole())?.split_first_chunk::<4>()?;
        self.leaving = true;
        out.extend_from_slice(&head.bytes());
        out.extend_from_slice(&last.to_be_bytes());
        out.extend_from_slice(rest);
        Some(head.whole())
    }

    /// It has written this; `data` is told how long each of its DATA is.
    #[inline]
    pub fn advance(&mut self, mut bytes: &[u8], mut data: impl FnMut(usize)) {
        loop {
            let payload = self.left.min(bytes.len());
            self.left -= payload;
            bytes = &bytes[payload..];
            if bytes.is_empty() {
                return;
            }
            let part = bytes.len().min(HEAD - self.read);
            self.head[self.read..self.read + part].copy_from_slice(&bytes[..part]);
            self.read += part;
            bytes = &bytes[part..];
            if self.read < HEAD {
                return;
            }
            self.read = 0;
            let head = Head::of(&self.head);
            self.left = head.length;
            match head.kind {
                DATA => data(head.length),
                HEADERS => {
                    // Where the settings apply by now, it has begun with the size.
                    self.table = self.table.filter(|told| self.applied.wrapping_sub(*told) > u32::MAX / 2);
                }
                SETTINGS if head.has(ACK) => self.applied = self.applied.wrapping_add(1),
                GOAWAY => self.leaving = true,
                _ => {}
            }
            if head.leaves_section_open() {
                self.in_section = true;
            } else if head.kind == CONTINUATION && head.has(END_HEADERS) {
                self.in_section = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::END_STREAM;
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        [&Head { length: payload.len(), kind, flags, stream }.bytes()[..], payload].concat()
    }

    #[test]
    fn something_else_is_written_between_frames_and_behind_field_sections() {
        let parts = [
            (frame(SETTINGS, 0, 0, b"abcdef"), true),
            (frame(HEADERS, 0, 1, b"a"), false),
            (frame(CONTINUATION, 0, 1, b""), false),
            (frame(CONTINUATION, END_HEADERS, 1, b"bc"), true),
            (frame(DATA, END_STREAM, 1, b"0123456789"), true),
            (frame(HEADERS, END_HEADERS, 3, b""), true),
        ];
        let all: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let mut ends = Vec::new();
        let mut end = 0;
        for (bytes, between) in &parts {
            end += bytes.len();
            if *between {
                ends.push(end);
            }
        }
        for step in 1..all.len() {
            let (mut frames, mut sent, mut at) = (ServerFrames::default(), 0, 0);
            for part in all.chunks(step) {
                assert_eq!(frames.before_rewritten(&all[at..], 0).min(1), 1);
                frames.advance(part, |data| sent += data);
                at += part.len();
                assert_eq!(frames.is_between(), ends.contains(&at), "{at} by {step}");
            }
            assert_eq!(sent, 10);
        }
    }

    #[test]
    fn a_goaway_names_the_last_that_is_answered() {
        let before = [frame(DATA, 0, 1, &[GOAWAY; 30]), frame(HEADERS, END_HEADERS, 3, b"a")].concat();
        let goaway = frame(GOAWAY, 0, 0, b"\0\0\0\x05\0\0\0\x01debug");
        let all = [&before[..], &goaway, &frame(DATA, 0, 1, b"x")].concat();
        for written in 0..before.len() {
            let (mut frames, mut written) = (ServerFrames::default(), written);
            frames.advance(&all[..written], |_| ());
            while written < before.len() {
                let count = frames.before_rewritten(&all[written..], 7);
                frames.advance(&all[written..written + count], |_| ());
                written += count;
            }
            assert_eq!(written, before.len());
            assert_eq!((frames.before_rewritten(&all[written..], 7), frames.is_leaving()), (0, false));
            let mut out = Vec::new();
            assert_eq!(frames.rewrite(&all[written..], 7, &mut out), Some(goaway.len()));
            assert_eq!(out, [&goaway[..HEAD], b"\0\0\0\x07", &goaway[HEAD + 4..]].concat());
            assert!(frames.is_leaving());
        }
        assert_eq!(ServerFrames::default().rewrite(&before, 7, &mut Vec::new()), None);
    }

    #[test]
    fn a_goaway_that_names_a_later_stream_is_sent_as_it_is() {
        let ping = frame(6, 0, 0, b"12345678");
        for last in [0, 3, 5] {
            let mut frames = ServerFrames::default();
            let all = [&frame(GOAWAY, 0, 0, b"\0\0\0\x05\0\0\0\0")[..], &ping].concat();
            assert_eq!(frames.before_rewritten(&all, last), all.len(), "{last}");
            frames.advance(&all, |_| ());
            assert!(frames.is_leaving() && frames.is_between());
        }
    }

    #[test]
    fn a_table_s_size_is_owed_until_h2_has_told_it() {
        let mut frames = ServerFrames::default();
        let (acknowledged, headers) = (frame(SETTINGS, ACK, 0, b""), frame(HEADERS, END_HEADERS, 1, b"a"));
        frames.tell(false);
        assert!(!frames.owes_table_size());
        frames.tell(true);
        for (written, owes) in [
            (&headers, true),
            (&acknowledged, true),
            (&headers, true),
            (&acknowledged, true),
            (&headers, false),
        ] {
            frames.advance(written, |_| ());
            assert_eq!(frames.owes_table_size(), owes);
        }
    }
}
