//! Tracks what h2 writes: answers from this layer go between its frames, and never into a field section. What h2 says
//! about the last stream is corrected if a later one was answered here.

use super::super::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, GOAWAY, HEAD, HEADERS, Head, SETTINGS, number,
};

/// The state of h2's output so far.
#[derive(Debug, Default)]
pub struct ServerFrames {
    /// The head of the current frame, and how much of it there is.
    head: [u8; HEAD],
    read: usize,
    /// How much of a frame's payload is missing.
    left: usize,
    /// Whether a field section continues in the next frame.
    in_section: bool,
    /// Whether h2 has announced the connection's end.
    leaving: bool,
    /// How many settings h2 has received, and how many it has acknowledged.
    told: u32,
    applied: u32,
    /// The number of the settings by which the client made the dynamic table smaller, until h2 confirms it in a field
    /// section. What is sent before that must come from h2 (RFC 7541, section 4.2).
    table: Option<u32>,
}

impl ServerFrames {
    /// Whether other bytes may be written now.
    #[inline]
    pub fn is_between(&self) -> bool {
        self.left == 0 && self.read == 0 && !self.in_section
    }

    /// Whether h2 has announced the connection's end. It then refuses later requests.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether a field section from elsewhere would be an error now.
    pub fn owes_table_size(&self) -> bool {
        self.table.is_some()
    }

    /// h2 receives settings. `shrinks` says whether they make the dynamic table smaller.
    pub fn tell(&mut self, shrinks: bool) {
        self.told = self.told.wrapping_add(1);
        if shrinks {
            self.table = Some(self.told);
        }
    }

    /// How many of h2's bytes precede a frame that names a stream before `last` as the last one.
    pub fn before_rewritten(&self, bytes: &[u8], last: u32) -> usize {
        if self.read > 0 {
            // A frame that has already started is not one. The rest is checked next time.
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

    /// Rewrites the GOAWAY at the start of these bytes so that it names `last`. Returns its length.
    pub fn rewrite(&mut self, bytes: &[u8], last: u32, out: &mut Vec<u8>) -> Option<usize> {
        let head = Head::first(bytes).filter(|head| head.kind == GOAWAY)?;
        let (_, rest) = bytes.get(HEAD..head.whole())?.split_first_chunk::<4>()?;
        self.leaving = true;
        out.extend_from_slice(&head.bytes());
        out.extend_from_slice(&last.to_be_bytes());
        out.extend_from_slice(rest);
        Some(head.whole())
    }

    /// h2 has written these bytes. `data` receives the length of each DATA frame.
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
                    // If the settings apply by now, this field section starts with the size.
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
    use super::super::super::frame::END_STREAM;
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
