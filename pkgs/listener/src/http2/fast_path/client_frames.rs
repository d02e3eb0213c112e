//! Decides what happens to a client's frames: most go to h2, a plain request may be answered here, and h2 must not see
//! frames of a request that was.

use h2::Reason;

use super::super::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, HEAD, HEADERS, Head, MOST, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, number,
};
use super::field_sections::{FieldSection, Open};
use super::server_frames::ServerFrames;
use super::windows::{Increment, Windows};

/// The length of what a client sends first (RFC 9113, section 3.4).
const PREFACE: usize = 24;

/// Identifiers of settings (RFC 9113, section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The size of a dynamic table unless a setting changes it.
const DEFAULT_TABLE: u32 = 4096;

/// How many frames a client may send on streams that were answered. Each counts as one, and a reset of a stream whose
/// answer it cannot have seen counts as two; each answer takes one back. Beyond the limit, the connection is closed.
/// curl 7.88 resets each stream once it has its answer.
const MOST_UNREST: u32 = 200;

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Receive more.
    More,
    /// Pass this many bytes to h2.
    Pass(usize),
    /// Drop this many bytes, which were for this layer.
    Swallow(usize),
    /// A field section is complete with this many bytes.
    Section(usize, FieldSection),
    /// End the connection.
    End(Reason),
}

/// The state of a client's frames so far.
#[derive(Debug)]
pub struct ClientFrames {
    /// How much of the preface is missing.
    preface: usize,
    /// A field section that continues in the next frame.
    open: Option<Box<Open>>,
    /// The last stream that was opened, and the last that h2 knows of. Those in between were answered here.
    last: u32,
    passed: u32,
    /// The last stream that was answered here, and the last whose answer was sent.
    answered: u32,
    sent: u32,
    /// The last size that the client allowed for this side's dynamic table.
    table: u32,
    unrest: u32,
}

impl Default for ClientFrames {
    fn default() -> Self {
        Self {
            preface: PREFACE,
            open: None,
            last: 0,
            passed: 0,
            answered: 0,
            sent: 0,
            table: DEFAULT_TABLE,
            unrest: 0,
        }
    }
}

impl ClientFrames {
    /// Decides about the next of these bytes. Collects at most `most` bytes of a field section. Bytes that h2 has to
    /// see differently are changed in place.
    pub fn next(
        &mut self,
        bytes: &mut [u8],
        most: usize,
        server: &mut ServerFrames,
        windows: &mut Windows,
    ) -> Step {
        if self.preface > 0 {
            let part = self.preface.min(bytes.len());
            self.preface -= part;
            return if part == 0 { Step::More } else { Step::Pass(part) };
        }
        let Some(head) = Head::first(bytes) else { return Step::More };
        // h2 refuses frames that are too long.
        if head.length > MOST {
            return Step::Pass(head.whole());
        }
        if self.open.is_some() {
            return self.goes_on(head, bytes, most);
        }
        match head.kind {
            HEADERS => self.headers(head, bytes),
            SETTINGS if !head.has(ACK) => self.settings(head, bytes, server, windows),
            WINDOW_UPDATE if head.length == 4 => self.window_update(head, bytes, windows),
            RST_STREAM if head.length == 4 => {
                self.swallow_or_pass(head, bytes, if head.stream <= self.sent { 1 } else { 2 })
            }
            PRIORITY if head.length == 5 => self.swallow_or_pass(head, bytes, 1),
            DATA if self.is_answered(head.stream) => Step::End(Reason::STREAM_CLOSED),
            _ => Step::Pass(head.whole()),
        }
    }

    /// Whether a request on this stream may be answered here. It must be the one that opens the stream.
    pub fn may_answer(&self, stream: u32, server: &ServerFrames) -> bool {
        stream % 2 == 1 && stream > self.last && !server.is_leaving() && !server.owes_table_size()
    }

    /// Records that the request on this stream was answered.
    pub fn answered(&mut self, stream: u32) {
        (self.last, self.answered) = (stream, stream);
        self.unrest = self.unrest.saturating_sub(1);
    }

    /// Records that all answers were sent.
    pub fn sent(&mut self) {
        self.sent = self.answered;
    }

    /// Records that this stream belongs to h2.
    pub fn pass(&mut self, stream: u32) {
        if stream % 2 == 1 && stream > self.last {
            (self.last, self.passed) = (stream, stream);
        }
    }

    /// The last stream that was answered here. h2 has seen everything before it.
    pub fn last_answered(&self) -> u32 {
        self.answered
    }

    /// Whether a stream was answered here or passed over. For a stream before the last one that h2 knows, h2 assumes
    /// the latter.
    fn is_answered(&self, stream: u32) -> bool {
        stream % 2 == 1 && self.passed < stream && stream <= self.last
    }

    fn headers(&mut self, head: Head, bytes: &[u8]) -> Step {
        if self.is_answered(head.stream) {
            // A stream that was passed over is closed too, and opening it is a different error (RFC 9113, section
            // 5.1.1).
            let closed = head.stream == self.last;
            return Step::End(if closed { Reason::STREAM_CLOSED } else { Reason::PROTOCOL_ERROR });
        }
        let Some(frame) = bytes.get(..head.whole()) else { return Step::More };
        // A malformed frame ends the connection, which h2 does.
        let Some(section) = FieldSection::begin(head, frame) else { return Step::Pass(head.whole()) };
        if head.has(END_HEADERS) {
            return Step::Section(head.whole(), section);
        }
        self.open = Some(Box::new(Open::new(section, frame)));
        Step::Swallow(head.whole())
    }

    /// Handles a frame within a field section.
    fn goes_on(&mut self, head: Head, bytes: &[u8], most: usize) -> Step {
        let Some(open) = &mut self.open else { return Step::More };
        if (head.kind, head.stream) != (CONTINUATION, open.stream()) {
            return Step::End(Reason::PROTOCOL_ERROR);
        }
        let Some(payload) = bytes.get(HEAD..head.whole()) else { return Step::More };
        let ends = head.has(END_HEADERS);
        if !open.extend(payload, ends, most) {
            return Step::End(Reason::ENHANCE_YOUR_CALM);
        }
        match self.open.take_if(|_| ends) {
            Some(open) => Step::Section(head.whole(), open.into_section()),
            None => Step::Swallow(head.whole()),
        }
    }

    fn settings(
        &mut self,
        head: Head,
        bytes: &[u8],
        server: &mut ServerFrames,
        windows: &mut Windows,
    ) -> Step {
        let Some(frame) = bytes.get(..head.whole()) else { return Step::More };
        let mut shrinks = false;
        for [a, b, value @ ..] in frame[HEAD..].as_chunks::<6>().0 {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                HEADER_TABLE_SIZE => shrinks |= value < std::mem::replace(&mut self.table, value),
                INITIAL_WINDOW_SIZE => windows.say(value),
                _ => {}
            }
        }
        server.tell(shrinks);
        Step::Pass(head.whole())
    }

    fn window_update(&mut self, head: Head, bytes: &mut [u8], windows: &mut Windows) -> Step {
        if head.stream > 0 {
            return self.swallow_or_pass(head, bytes, 1);
        }
        let Some(frame) = bytes.get_mut(..head.whole()) else { return Step::More };
        match number(frame, HEAD) {
            // h2 accepts every size.
            None | Some(0) => Step::Pass(head.whole()),
            Some(increment) => match windows.grow(increment) {
                Increment::Told(0) => Step::Swallow(head.whole()),
                Increment::Told(told) => {
                    frame[HEAD..].copy_from_slice(&told.to_be_bytes());
                    Step::Pass(head.whole())
                }
                Increment::TooLarge => Step::End(Reason::FLOW_CONTROL_ERROR),
            },
        }
    }

    /// Handles a frame that may come after the end of its stream.
    fn swallow_or_pass(&mut self, head: Head, bytes: &[u8], unrest: u32) -> Step {
        if !self.is_answered(head.stream) {
            return Step::Pass(head.whole());
        }
        if bytes.len() < head.whole() {
            return Step::More;
        }
        self.unrest += unrest;
        if self.unrest > MOST_UNREST {
            return Step::End(Reason::ENHANCE_YOUR_CALM);
        }
        Step::Swallow(head.whole())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::{END_STREAM, GOAWAY, PADDED, WITH_PRIORITY};
    use super::*;

    const ASK: u8 = END_STREAM | END_HEADERS;

    /// The most bytes that are collected of a field section.
    const COLLECTED: usize = 100;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        [&Head { length: payload.len(), kind, flags, stream }.bytes()[..], payload].concat()
    }

    /// A connection's frames, and the server's state.
    #[derive(Default)]
    struct Connection {
        client: ClientFrames,
        server: ServerFrames,
        windows: Windows,
    }

    impl Connection {
        /// A connection after the preface.
        fn ready() -> Self {
            let mut connection = Self::default();
            assert_eq!(connection.next(&[b'p'; PREFACE]), Step::Pass(PREFACE));
            assert_eq!(connection.next(&frame(SETTINGS, 0, 0, b"")), Step::Pass(HEAD));
            connection
        }

        fn next(&mut self, bytes: &[u8]) -> Step {
            self.client.next(&mut bytes.to_vec(), COLLECTED, &mut self.server, &mut self.windows)
        }

        /// Answers the next request.
        fn answer(&mut self, stream: u32) {
            assert!(self.asks(&frame(HEADERS, ASK, stream, b"\x82")));
            self.client.answered(stream);
        }

        /// Whether these bytes are a complete field section that may be answered.
        fn asks(&mut self, bytes: &[u8]) -> bool {
            let Step::Section(length, section) = self.next(bytes) else { return false };
            assert_eq!(length, bytes.len());
            section.ends && self.client.may_answer(section.stream, &self.server)
        }
    }

    #[test]
    fn field_sections_are_read_here_and_requests_may_be_answered() {
        for (flags, stream, asks) in [
            (ASK, 1, true),
            (ASK | PADDED | WITH_PRIORITY, 3, true),
            (END_HEADERS, 1, false),
            // Clients do not open such a stream.
            (ASK, 2, false),
        ] {
            let bytes = frame(HEADERS, flags, stream, b"\x01\0\0\0\0\x0fz");
            assert_eq!(Connection::ready().asks(&bytes), asks, "{flags} {stream}");
        }
        let mut connection = Connection::ready();
        connection.client.pass(5);
        for stream in [1, 3, 5] {
            assert!(!connection.asks(&frame(HEADERS, ASK, stream, b"\x82")), "it was opened before");
        }
        connection.client.pass(1);
        connection.answer(7);
    }

    #[test]
    fn what_is_no_field_section_is_h2_s() {
        for (kind, flags, stream, payload) in [
            (HEADERS, ASK, 0, &b"\x82"[..]),
            (HEADERS, ASK | PADDED, 3, b"\x02\x82"),
            // It is too short for the priority that its flag announces.
            (HEADERS, ASK | WITH_PRIORITY, 3, b"\x00\x00"),
            (CONTINUATION, END_HEADERS, 3, b"\x82"),
            (DATA, END_STREAM, 1, b"a"),
            (DATA, END_STREAM, 3, b"a"),
            (RST_STREAM, 0, 1, b"\0\0\0\x08"),
            (RST_STREAM, 0, 3, b"\0\0\0\x08"),
            (PRIORITY, 0, 7, b"\0\0\0\0\x0f"),
            (WINDOW_UPDATE, 0, 3, b"\0\0\0\x08"),
            (WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
            (WINDOW_UPDATE, 0, 0, b"\0\0\x08"),
            (SETTINGS, 0, 0, b"\0\x04\0\0\0"),
            (SETTINGS, ACK, 0, b""),
            (GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0"),
            (0xee, 0, 3, b"what nobody knows"),
        ] {
            let bytes = frame(kind, flags, stream, payload);
            assert_eq!(Connection::ready().next(&bytes), Step::Pass(bytes.len()), "{bytes:x?}");
        }
        // A frame that is too long is not waited for.
        let head = Head { length: MOST + 1, kind: HEADERS, flags: ASK, stream: 3 };
        assert_eq!(Connection::ready().next(&head.bytes()), Step::Pass(head.whole()));
    }

    #[test]
    fn what_is_not_whole_is_waited_for() {
        let settings = [&b"\0\x04\0\0\0\x07"[..], b"\0\x01\0\0\0\0"].concat();
        for bytes in [
            frame(HEADERS, ASK, 5, b"\x82\x84"),
            frame(HEADERS, 0, 5, b"\x82\x84"),
            frame(SETTINGS, 0, 0, &settings),
            frame(WINDOW_UPDATE, 0, 0, b"\0\0\x08\0"),
            frame(RST_STREAM, 0, 3, b"\0\0\0\x08"),
        ] {
            let mut connection = Connection::ready();
            connection.answer(3);
            for cut in 0..bytes.len() {
                assert_eq!(connection.next(&bytes[..cut]), Step::More, "{bytes:x?} at {cut}");
            }
            assert_ne!(connection.next(&bytes), Step::More);
        }
    }

    #[test]
    fn a_field_section_in_several_frames_is_whole_with_its_last() {
        let mut connection = Connection::ready();
        for bytes in [frame(HEADERS, END_STREAM, 3, b"\x82"), frame(CONTINUATION, 0, 3, b"\x84")] {
            assert_eq!(connection.next(&bytes), Step::Swallow(bytes.len()));
        }
        let last = frame(CONTINUATION, END_HEADERS, 3, b"\x86");
        for cut in 0..last.len() {
            assert_eq!(connection.next(&last[..cut]), Step::More);
        }
        let Step::Section(length, section) = connection.next(&last) else { panic!("it is not whole") };
        assert_eq!((length, section.block(b""), section.ends), (last.len(), &b"\x82\x84\x86"[..], true));
        assert!(connection.client.may_answer(section.stream, &connection.server));
        connection.answer(3);
    }

    #[test]
    fn nothing_else_comes_within_a_field_section() {
        for (bytes, step) in [
            (frame(HEADERS, ASK, 5, b"\x82"), Step::End(Reason::PROTOCOL_ERROR)),
            (frame(CONTINUATION, END_HEADERS, 5, b"\x82"), Step::End(Reason::PROTOCOL_ERROR)),
            (frame(CONTINUATION, END_HEADERS, 0, b"\x82"), Step::End(Reason::PROTOCOL_ERROR)),
            (frame(SETTINGS, 0, 0, b""), Step::End(Reason::PROTOCOL_ERROR)),
            (frame(0xee, 0, 3, b""), Step::End(Reason::PROTOCOL_ERROR)),
            (frame(CONTINUATION, END_HEADERS, 3, &[0x82; COLLECTED]), Step::End(Reason::ENHANCE_YOUR_CALM)),
            (frame(CONTINUATION, 0, 3, &[0x82; MOST + 1]), Step::Pass(HEAD + MOST + 1)),
        ] {
            let mut connection = Connection::ready();
            assert_eq!(connection.next(&frame(HEADERS, END_STREAM, 3, b"\x82")), Step::Swallow(HEAD + 1));
            assert_eq!(connection.next(&bytes), step, "{:x?}", &bytes[..HEAD]);
        }
        let mut connection = Connection::ready();
        connection.next(&frame(HEADERS, END_STREAM, 3, b"\x82"));
        let endless = frame(CONTINUATION, 0, 3, b"");
        assert!((0..10).any(|_| connection.next(&endless) == Step::End(Reason::ENHANCE_YOUR_CALM)));
    }

    #[test]
    fn h2_does_not_see_what_belongs_to_an_answered_stream() {
        let mut connection = Connection::ready();
        connection.client.pass(1);
        connection.answer(3);
        connection.answer(7);
        for (kind, stream, payload, step) in [
            (WINDOW_UPDATE, 7, &b"\0\0\0\x01"[..], Step::Swallow(13)),
            (WINDOW_UPDATE, 3, b"\0\0\0\x01", Step::Swallow(13)),
            (RST_STREAM, 7, b"\0\0\0\x08", Step::Swallow(13)),
            (PRIORITY, 7, b"\0\0\0\0\x0f", Step::Swallow(14)),
            // h2 refuses malformed frames.
            (RST_STREAM, 7, b"\0\0\0", Step::Pass(12)),
            (WINDOW_UPDATE, 9, b"\0\0\0\x01", Step::Pass(13)),
            (WINDOW_UPDATE, 6, b"\0\0\0\x01", Step::Pass(13)),
            (DATA, 7, b"", Step::End(Reason::STREAM_CLOSED)),
            (DATA, 5, b"", Step::End(Reason::STREAM_CLOSED)),
            (HEADERS, 7, b"\x82", Step::End(Reason::STREAM_CLOSED)),
            (HEADERS, 5, b"\x82", Step::End(Reason::PROTOCOL_ERROR)),
        ] {
            assert_eq!(connection.next(&frame(kind, ASK, stream, payload)), step, "{kind} {stream}");
        }
        assert_eq!(connection.client.last_answered(), 7);
        // Once h2 knows a later stream, it considers these streams passed over.
        connection.client.pass(9);
        for (kind, stream, payload) in [(WINDOW_UPDATE, 7, &b"\0\0\0\x01"[..]), (DATA, 7, b"")] {
            let bytes = frame(kind, ASK, stream, payload);
            assert_eq!(connection.next(&bytes), Step::Pass(bytes.len()));
        }
        assert!(!connection.asks(&frame(HEADERS, ASK, 7, b"\x82")));
        assert_eq!(connection.client.last_answered(), 7);
    }

    #[test]
    fn resets_of_what_was_answered_have_a_bound() {
        let reset = |stream| frame(RST_STREAM, 0, stream, b"\0\0\0\x08");
        let mut connection = Connection::ready();
        let calm = (1..)
            .take_while(|n| {
                connection.answer(2 * n + 1);
                connection.next(&reset(2 * n + 1)) == Step::Swallow(13)
            })
            .count();
        assert!((100..=200).contains(&calm), "{calm}");
        assert_eq!(connection.next(&reset(3)), Step::End(Reason::ENHANCE_YOUR_CALM));
        // A client that sends more frames for half of its requests is fine.
        let mut connection = Connection::ready();
        for n in 1..5_000 {
            connection.answer(4 * n + 1);
            connection.answer(4 * n + 3);
            assert_eq!(connection.next(&reset(4 * n + 1)), Step::Swallow(13));
        }
        // So is one that resets each stream after its answer, or extends each stream's window.
        for n in 5_000..10_000 {
            connection.answer(4 * n + 5);
            connection.client.sent();
            assert_eq!(connection.next(&reset(4 * n + 5)), Step::Swallow(13));
        }
        for n in 10_002..20_000 {
            connection.answer(4 * n + 1);
            let update = frame(WINDOW_UPDATE, 0, 4 * n + 1, b"\0\0\0\x01");
            assert_eq!(connection.next(&update), Step::Swallow(13));
        }
    }

    #[test]
    fn h2_is_told_of_a_part_of_the_window() {
        let mut connection = Connection::ready();
        let mut update = frame(WINDOW_UPDATE, 0, 0, b"\0\x10\0\0");
        let Connection { client, server, windows } = &mut connection;
        assert_eq!(client.next(&mut update, COLLECTED, server, windows), Step::Pass(13));
        let told = number(&update, HEAD).expect("a number") as usize;
        let kept = (65_535 + (1 << 20)) / 2;
        assert_eq!((told, windows.room()), ((1 << 20) - kept, MOST));
        let small = frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x07");
        assert_eq!(connection.next(&small), Step::Pass(13), "a part is kept");
        assert_eq!(Connection::ready().next(&small), Step::Swallow(13), "all of it is kept");
        let most = frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff");
        assert_eq!(connection.next(&most), Step::End(Reason::FLOW_CONTROL_ERROR));
    }

    #[test]
    fn h2_tells_that_its_table_is_smaller_before_anything_is_answered() {
        let size = |size: u32| frame(SETTINGS, 0, 0, &[&b"\0\x01"[..], &size.to_be_bytes()].concat());
        let mut connection = Connection::ready();
        // As browsers do.
        for larger in [4096, 65_536] {
            assert_eq!(connection.next(&size(larger)), Step::Pass(HEAD + 6));
            assert!(connection.asks(&frame(HEADERS, ASK, 1, b"\x82")), "{larger}");
        }
        assert_eq!(connection.next(&size(4096)), Step::Pass(HEAD + 6));
        assert!(!connection.asks(&frame(HEADERS, ASK, 1, b"\x82")));
        for bytes in [[&frame(SETTINGS, ACK, 0, b"")[..]; 4].concat(), frame(HEADERS, ASK, 1, b"\x20\x88")] {
            connection.server.advance(&bytes, |_| ());
        }
        connection.answer(5);
    }

    #[test]
    fn nothing_is_answered_once_h2_has_said_goodbye() {
        let mut connection = Connection::ready();
        connection.answer(3);
        connection.server.advance(&frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0"), |_| ());
        assert!(!connection.asks(&frame(HEADERS, ASK, 5, b"\x82")));
    }
}
