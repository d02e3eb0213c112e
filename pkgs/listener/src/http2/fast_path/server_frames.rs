//! Where h2 is in what it writes: answers from here go between its frames, and never into a field section. Two of its frames are
//! rewritten: its settings, and what it says of the last stream.

use super::frame::{ACK, CONTINUATION, DATA, END_HEADERS, GOAWAY, HEAD, HEADERS, Head, SETTINGS};

/// SETTINGS_HEADER_TABLE_SIZE is 0 (RFC 9113, section 6.5.2).
const NO_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

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
    /// Whether its settings have been rewritten, which come first.
    begun: bool,
    /// Whether it has said that the connection ends.
    leaving: bool,
    /// How often it was told of settings, and has said that they apply.
    told: u32,
    applied: u32,
    /// By which of these the client has changed the size of its dynamic table, where h2 has not yet said in a field section that
    /// it follows: what is sent before that has to be h2's (RFC 7541, section 4.2).
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

    /// h2 is told of settings, which say something of the dynamic table or do not.
    pub fn tell(&mut self, of_table: bool) {
        self.told = self.told.wrapping_add(1);
        if of_table {
            self.table = Some(self.told);
        }
    }

    /// How many of the bytes it wants to write there are before the next frame that is to be rewritten.
    pub fn before_rewritten(&self, bytes: &[u8]) -> usize {
        if !self.begun {
            return 0;
        }
        if self.read > 0 {
            // That which has begun is none. The rest is looked at next time.
            return bytes.len().min(HEAD - self.read);
        }
        let mut at = self.left;
        while let Some(head) = bytes.get(at..).and_then(Head::first) {
            if head.kind == GOAWAY {
                return at;
            }
            at += head.whole();
        }
        bytes.len()
    }

    /// Rewrites the frame that these bytes begin with, which is taken from h2; none where it is not to be.
    ///
    /// The first settings say as well that the client may not use a dynamic table. h2 is not told of that: a client that does so
    /// all the same, which some do that know only the default, is then h2's as without a fast path. A GOAWAY names the last
    /// stream that is answered here, if it would name an earlier one.
    pub fn rewrite(&mut self, bytes: &[u8], last: u32, out: &mut Vec<u8>) -> Option<usize> {
        let head = Head::first(bytes)?;
        let payload = bytes.get(HEAD..head.whole())?;
        match head.kind {
            SETTINGS if !self.begun => {
                out.extend_from_slice(&Head { length: head.length + NO_TABLE.len(), ..head }.bytes());
                out.extend_from_slice(payload);
                out.extend_from_slice(&NO_TABLE);
            }
            GOAWAY => {
                let (id, rest) = payload.split_first_chunk()?;
                self.leaving = true;
                out.extend_from_slice(&head.bytes());
                out.extend_from_slice(&u32::from_be_bytes(*id).max(last).to_be_bytes());
                out.extend_from_slice(rest);
            }
            _ => return None,
        }
        self.begun = true;
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

    /// Whose settings were written.
    fn begun() -> ServerFrames {
        let mut frames = ServerFrames::default();
        frames.rewrite(&frame(SETTINGS, 0, 0, b""), 0, &mut Vec::new()).expect("they are rewritten");
        frames
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
            let (mut frames, mut sent, mut at) = (begun(), 0, 0);
            for part in all.chunks(step) {
                assert_eq!(frames.before_rewritten(&all[at..]).min(1), 1);
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
            let (mut frames, mut written) = (begun(), written);
            frames.advance(&all[..written], |_| ());
            while written < before.len() {
                let count = frames.before_rewritten(&all[written..]);
                frames.advance(&all[written..written + count], |_| ());
                written += count;
            }
            assert_eq!(written, before.len());
            assert_eq!((frames.before_rewritten(&all[written..]), frames.is_leaving()), (0, false));
            for (last, named) in [(3, 5), (5, 5), (0x0102, 0x0102)] {
                let mut out = Vec::new();
                assert_eq!(frames.rewrite(&all[written..], last, &mut out), Some(goaway.len()));
                assert_eq!(out[..HEAD], goaway[..HEAD]);
                assert_eq!(out[HEAD..HEAD + 4], u32::to_be_bytes(named));
                assert_eq!(out[HEAD + 4..], goaway[HEAD + 4..]);
            }
            assert!(frames.is_leaving());
        }
        assert_eq!(begun().rewrite(&before, 1, &mut Vec::new()), None);
    }

    #[test]
    fn the_first_settings_say_that_there_is_no_table() {
        let settings = frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x07");
        let mut frames = ServerFrames::default();
        assert_eq!(frames.before_rewritten(&settings), 0);
        let mut out = Vec::new();
        assert_eq!(frames.rewrite(&settings, 0, &mut out), Some(settings.len()));
        assert_eq!(out, frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x07\0\x01\0\0\0\0"));
        assert_eq!(frames.before_rewritten(&settings), settings.len(), "others are as they are");
        assert_eq!(frames.rewrite(&settings, 0, &mut out), None);
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
