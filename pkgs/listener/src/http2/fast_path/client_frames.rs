//! What becomes of a client's frames: most are h2's, a plain request may be answered here, and h2 is not to see what belongs to
//! one that was.

use h2::Reason;

use super::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEAD, HEADERS, Head, MOST, PADDED, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY, number,
};
use super::server_frames::ServerFrames;
use super::windows::{Increment, Windows};

/// What a client says first (RFC 9113, section 3.4).
const PREFACE: usize = 24;

/// The longest field section that may be answered here.
const MOST_SECTION: usize = 4096;

/// Settings (RFC 9113, section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A field section begins by saying how large the dynamic table is (RFC 7541, section 6.3), and that it has no room.
const TABLE: u8 = 0b0010_0000;
const TABLE_MASK: u8 = 0b1110_0000;
const NO_TABLE: u8 = TABLE;

/// How far a client may go with frames of streams that have been answered, for which it has no reason. Each counts as one, and
/// the reset of an answered stream as two; each answer takes one back. Beyond, the connection is closed.
const MOST_UNREST: u32 = 200;

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// More is to be received.
    More,
    /// So many bytes are h2's.
    Pass(usize),
    /// So many bytes were for here.
    Swallow(usize),
    /// So many bytes are a request that may be plain, on this stream; its field section are those from here on.
    Ask { length: usize, stream: u32, section: usize },
    /// The connection ends.
    End(Reason),
}

/// Whether field sections can be read without those before them.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stateless {
    /// The client does not know yet that it may not use a dynamic table.
    #[default]
    NotYet,
    /// It knows, and has yet to say so in a field section (RFC 7541, section 4.2), which h2 has to see as well.
    Known,
    /// It has said so.
    Said,
    /// It does something that is not understood here.
    Never,
}

/// What a field section says of the dynamic table before all else.
#[derive(Debug, PartialEq, Eq)]
enum Table {
    Nothing,
    NoRoom,
    /// That it has room, or something that is not looked at here.
    Else,
}

impl Table {
    /// Reads it; none where more is to be received.
    fn of(head: Head, bytes: &[u8]) -> Option<Self> {
        let start = HEAD + usize::from(head.has(PADDED)) + if head.has(WITH_PRIORITY) { 5 } else { 0 };
        let known = bytes.get(..(start + 2).min(head.whole()))?;
        let padding =
            if head.has(PADDED) { known.get(HEAD).map_or(0, |length| usize::from(*length)) } else { 0 };
        let end = head.whole().saturating_sub(padding).min(known.len());
        let whole = head.has(END_HEADERS);
        Some(match known.get(start..end).unwrap_or_default() {
            [NO_TABLE, next, ..] if next & TABLE_MASK != TABLE => Self::NoRoom,
            [NO_TABLE] if whole => Self::NoRoom,
            [first, ..] if first & TABLE_MASK != TABLE => Self::Nothing,
            [] if whole => Self::Nothing,
            _ => Self::Else,
        })
    }
}

/// What a client has sent so far.
#[derive(Debug)]
pub struct ClientFrames {
    /// How much of the preface is still to come.
    preface: usize,
    stateless: Stateless,
    /// Whether a field section of h2's goes on in the next frame.
    in_section: bool,
    /// The last stream that was opened, and the last that h2 knows of: those between have been answered here.
    last: u32,
    passed: u32,
    /// The last that was answered here.
    answered: u32,
    unrest: u32,
}

impl Default for ClientFrames {
    fn default() -> Self {
        let stateless = Stateless::default();
        Self { preface: PREFACE, stateless, in_section: false, last: 0, passed: 0, answered: 0, unrest: 0 }
    }
}

impl ClientFrames {
    /// What becomes of the next of these bytes, of which `room` are received at most before something is decided. What h2 is
    /// to be told of otherwise is changed in them.
    pub fn next(
        &mut self,
        bytes: &mut [u8],
        room: usize,
        server: &mut ServerFrames,
        windows: &mut Windows,
    ) -> Step {
        if self.preface > 0 {
            let part = self.preface.min(bytes.len());
            self.preface -= part;
            return if part == 0 { Step::More } else { Step::Pass(part) };
        }
        let Some(head) = Head::first(bytes) else { return Step::More };
        // Any other than what goes on is h2's to refuse, as is what is too long.
        if self.in_section || head.length > MOST {
            self.in_section &= !(head.kind == CONTINUATION && head.has(END_HEADERS));
            return Step::Pass(head.whole());
        }
        match head.kind {
            HEADERS => self.headers(head, bytes, room, server),
            SETTINGS if head.has(ACK) => {
                if self.stateless == Stateless::NotYet {
                    // The first settings say it, and are the first to be acknowledged.
                    self.stateless = Stateless::Known;
                }
                Step::Pass(head.whole())
            }
            SETTINGS => self.settings(head, bytes, room, server, windows),
            WINDOW_UPDATE if head.length == 4 => self.window_update(head, bytes, windows),
            RST_STREAM if head.length == 4 => self.swallow_or_pass(head, bytes, 2),
            PRIORITY if head.length == 5 => self.swallow_or_pass(head, bytes, 1),
            DATA if self.is_answered(head.stream) => Step::End(Reason::STREAM_CLOSED),
            _ => {
                self.in_section = head.leaves_section_open();
                Step::Pass(head.whole())
            }
        }
    }

    /// The request on this stream was answered.
    pub fn answered(&mut self, stream: u32) {
        (self.last, self.answered) = (stream, stream);
        self.unrest = self.unrest.saturating_sub(1);
    }

    /// The request on this stream is h2's.
    pub fn pass(&mut self, stream: u32) {
        (self.last, self.passed) = (stream, stream);
    }

    /// The last stream that was answered here. What came before it h2 has seen by now.
    pub fn last_answered(&self) -> u32 {
        self.answered
    }

    /// Whether a stream was answered here, or passed over. Of one before those that h2 knows, h2 thinks the latter.
    fn is_answered(&self, stream: u32) -> bool {
        stream % 2 == 1 && self.passed < stream && stream <= self.last
    }

    fn headers(&mut self, head: Head, bytes: &[u8], room: usize, server: &ServerFrames) -> Step {
        if self.is_answered(head.stream) {
            // A stream that was passed over is closed as well, and opening it is another mistake (RFC 9113, section 5.1.1).
            let closed = head.stream == self.last;
            return Step::End(if closed { Reason::STREAM_CLOSED } else { Reason::PROTOCOL_ERROR });
        }
        if matches!(self.stateless, Stateless::Known | Stateless::Said) {
            let Some(table) = Table::of(head, bytes) else { return Step::More };
            if table == Table::Else && self.stateless == Stateless::Said {
                self.stateless = Stateless::Never;
            } else if table == Table::NoRoom && self.stateless == Stateless::Known {
                self.stateless = Stateless::Said;
                return self.pass_headers(head);
            }
        }
        let section = HEAD + if head.has(WITH_PRIORITY) { 5 } else { 0 };
        if self.stateless == Stateless::Said
            && head.has(END_STREAM | END_HEADERS)
            && !head.has(PADDED)
            && head.stream % 2 == 1
            && head.stream > self.last
            && (section..=room.min(HEAD + MOST_SECTION)).contains(&head.whole())
            && !server.is_leaving()
            && !server.owes_table_size()
        {
            if bytes.len() < head.whole() {
                return Step::More;
            }
            // A stream that depends on itself is h2's to refuse.
            if !head.has(WITH_PRIORITY) || number(bytes, HEAD) != Some(head.stream) {
                return Step::Ask { length: head.whole(), stream: head.stream, section };
            }
        }
        self.pass_headers(head)
    }

    fn pass_headers(&mut self, head: Head) -> Step {
        self.in_section = head.leaves_section_open();
        if head.stream % 2 == 1 && head.stream > self.last {
            self.pass(head.stream);
        }
        Step::Pass(head.whole())
    }

    fn settings(
        &mut self,
        head: Head,
        bytes: &[u8],
        room: usize,
        server: &mut ServerFrames,
        windows: &mut Windows,
    ) -> Step {
        if head.whole() > room {
            // Nobody has so much to say.
            self.stateless = Stateless::Never;
        } else {
            let Some(frame) = bytes.get(..head.whole()) else { return Step::More };
            let mut of_table = false;
            for [a, b, value @ ..] in frame[HEAD..].as_chunks::<6>().0 {
                let value = u32::from_be_bytes(*value);
                match u16::from_be_bytes([*a, *b]) {
                    HEADER_TABLE_SIZE => of_table = true,
                    INITIAL_WINDOW_SIZE => windows.say(value),
                    _ => {}
                }
            }
            server.tell(of_table);
        }
        Step::Pass(head.whole())
    }

    fn window_update(&mut self, head: Head, bytes: &mut [u8], windows: &mut Windows) -> Step {
        if head.stream > 0 {
            return self.swallow_or_pass(head, bytes, 1);
        }
        let Some(frame) = bytes.get_mut(..head.whole()) else { return Step::More };
        match number(frame, HEAD) {
            // h2 refuses none.
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

    /// A frame that may come after the end of its stream.
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
    use super::super::frame::GOAWAY;
    use super::*;

    const ASK: u8 = END_STREAM | END_HEADERS;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        [&Head { length: payload.len(), kind, flags, stream }.bytes()[..], payload].concat()
    }

    /// A connection's frames, and what is known beside.
    #[derive(Default)]
    struct Connection {
        client: ClientFrames,
        server: ServerFrames,
        windows: Windows,
    }

    impl Connection {
        /// One on which requests may be answered.
        fn ready() -> Self {
            let mut connection = Self::default();
            for (bytes, passed) in [
                (vec![b'p'; PREFACE], PREFACE),
                (frame(SETTINGS, 0, 0, b""), HEAD),
                (frame(SETTINGS, ACK, 0, b""), HEAD),
                (frame(HEADERS, ASK, 1, b"\x20\x82"), HEAD + 2),
            ] {
                assert_eq!(connection.next(&bytes), Step::Pass(passed));
            }
            connection
        }

        fn next(&mut self, bytes: &[u8]) -> Step {
            self.client.next(&mut bytes.to_vec(), 8192, &mut self.server, &mut self.windows)
        }

        /// Has the next request be answered.
        fn answer(&mut self, stream: u32) {
            let asked = self.next(&frame(HEADERS, ASK, stream, b"\x82"));
            assert_eq!(asked, Step::Ask { length: HEAD + 1, stream, section: HEAD });
            self.client.answered(stream);
        }
    }

    #[test]
    fn nothing_is_answered_before_the_client_has_given_up_its_table() {
        let request = |first: u8| frame(HEADERS, ASK, 1, &[first, 0x84]);
        let acknowledged = frame(SETTINGS, ACK, 0, b"");
        for before in [
            vec![],
            vec![request(NO_TABLE)],
            vec![acknowledged.clone()],
            vec![acknowledged.clone(), request(0x82)],
            // It has room after all, or that may yet come, or is in the padding.
            vec![acknowledged.clone(), frame(HEADERS, ASK, 1, b"\x20\x3f\x61\x82")],
            vec![acknowledged.clone(), frame(HEADERS, END_STREAM, 1, b"\x20")],
            vec![acknowledged.clone(), frame(HEADERS, ASK | PADDED, 1, b"\x01\x20")],
            vec![
                acknowledged.clone(),
                frame(HEADERS, ASK, 1, b"\x20\x82"),
                frame(HEADERS, ASK, 3, b"\x3f\x61\x82"),
            ],
            vec![
                acknowledged.clone(),
                frame(HEADERS, ASK, 1, b"\x20\x82"),
                frame(HEADERS, ASK | PADDED, 3, b"\0\x21\x82"),
            ],
            vec![acknowledged, frame(HEADERS, ASK, 1, b"")],
        ] {
            let mut connection = Connection::default();
            connection.next(&[b'p'; PREFACE]);
            let goes_on = before.last().is_some_and(|last| last[3] == HEADERS && last[4] & END_HEADERS == 0);
            let end = if goes_on { frame(CONTINUATION, END_HEADERS, 1, b"\x3f\x61\x82") } else { vec![] };
            let end = Some(end).filter(|end| !end.is_empty());
            for bytes in before.iter().chain(&end).chain([&frame(HEADERS, ASK, 9, b"\x82\x84")]) {
                assert_eq!(connection.next(bytes), Step::Pass(bytes.len()), "{before:x?}");
            }
        }
    }

    #[test]
    fn what_is_no_plain_request_is_h2_s() {
        let long = vec![0x82; MOST_SECTION + 1];
        for (kind, flags, stream, payload) in [
            (HEADERS, END_HEADERS, 3, &b"\x82"[..]),
            (HEADERS, END_STREAM, 3, b"\x82"),
            (HEADERS, ASK | PADDED, 3, b"\x00\x82"),
            (HEADERS, ASK, 0, b"\x82"),
            (HEADERS, ASK, 2, b"\x82"),
            (HEADERS, ASK, 1, b"\x82"),
            (HEADERS, ASK, 3, &long),
            // It depends on itself, or has no room for what it says it does on.
            (HEADERS, ASK | WITH_PRIORITY, 3, b"\x80\x00\x00\x03\x0f\x82"),
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
        // What is too long is not waited for.
        let head = Head { length: MOST + 1, kind: HEADERS, flags: ASK, stream: 3 };
        assert_eq!(Connection::ready().next(&head.bytes()), Step::Pass(head.whole()));
    }

    #[test]
    fn a_request_may_come_with_a_priority() {
        let asked = Connection::ready().next(&frame(HEADERS, ASK | WITH_PRIORITY, 3, b"\x80\0\0\0\x0f\x82"));
        assert_eq!(asked, Step::Ask { length: HEAD + 6, stream: 3, section: HEAD + 5 });
    }

    #[test]
    fn what_is_not_whole_is_waited_for() {
        let settings = [&b"\0\x04\0\0\0\x07"[..], b"\0\x01\0\0\0\0"].concat();
        for bytes in [
            frame(HEADERS, ASK, 5, b"\x82\x84"),
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
        // A section that says something is looked at as soon as it does.
        let mut connection = Connection::default();
        connection.next(&[b'p'; PREFACE]);
        connection.next(&frame(SETTINGS, ACK, 0, b""));
        let bytes = frame(HEADERS, ASK, 1, b"\x20\x82");
        assert_eq!(connection.next(&bytes[..=HEAD]), Step::More);
        assert_eq!(connection.next(&bytes), Step::Pass(bytes.len()));
        connection.answer(3);
    }

    #[test]
    fn that_there_is_no_table_may_be_said_with_a_priority_or_padding() {
        for (flags, payload) in
            [(WITH_PRIORITY, &b"\0\0\0\0\x0f\x20\x82"[..]), (PADDED, b"\x02\x20\x82zz"), (0, b"\x20")]
        {
            let mut connection = Connection::default();
            connection.next(&[b'p'; PREFACE]);
            connection.next(&frame(SETTINGS, ACK, 0, b""));
            let bytes = frame(HEADERS, ASK | flags, 1, payload);
            assert_eq!(connection.next(&bytes), Step::Pass(bytes.len()));
            connection.answer(3);
        }
    }

    #[test]
    fn a_field_section_that_goes_on_is_h2_s_to_its_end() {
        let mut connection = Connection::ready();
        let request = frame(HEADERS, ASK, 5, b"\x82");
        for bytes in [
            frame(HEADERS, END_STREAM, 3, b"\x82"),
            frame(CONTINUATION, 0, 3, b"\x84"),
            // Which ends the connection there.
            request.clone(),
            frame(CONTINUATION, END_HEADERS, 3, b"\x84"),
        ] {
            assert_eq!(connection.next(&bytes), Step::Pass(bytes.len()));
        }
        assert!(matches!(connection.next(&request), Step::Ask { .. }));
    }

    #[test]
    fn h2_does_not_see_what_belongs_to_an_answered_stream() {
        let mut connection = Connection::ready();
        connection.answer(3);
        connection.answer(7);
        for (kind, stream, payload, step) in [
            (WINDOW_UPDATE, 7, &b"\0\0\0\x01"[..], Step::Swallow(13)),
            (WINDOW_UPDATE, 3, b"\0\0\0\x01", Step::Swallow(13)),
            (RST_STREAM, 7, b"\0\0\0\x08", Step::Swallow(13)),
            (PRIORITY, 7, b"\0\0\0\0\x0f", Step::Swallow(14)),
            // What is malformed is h2's to refuse.
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
        // To h2 they are streams that were passed over, once it knows of a later one.
        connection.client.pass(9);
        for (kind, stream, payload) in
            [(WINDOW_UPDATE, 7, &b"\0\0\0\x01"[..]), (DATA, 7, b""), (HEADERS, 7, b"\x82")]
        {
            let bytes = frame(kind, ASK, stream, payload);
            assert_eq!(connection.next(&bytes), Step::Pass(bytes.len()));
        }
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
        // One that goes on with half of what it asks for does no harm.
        let mut connection = Connection::ready();
        for n in 1..10_000 {
            connection.answer(4 * n + 1);
            connection.answer(4 * n + 3);
            assert_eq!(connection.next(&reset(4 * n + 1)), Step::Swallow(13));
        }
        // Nor does one that asks for more of each answer.
        for n in 10_000..20_000 {
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
        assert_eq!(client.next(&mut update, 8192, server, windows), Step::Pass(13));
        let told = number(&update, HEAD).expect("a number") as usize;
        let kept = (65_535 + (1 << 20)) / 4;
        assert_eq!((told, windows.room()), ((1 << 20) - kept, MOST));
        let small = frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x07");
        assert_eq!(connection.next(&small), Step::Pass(13), "a part is kept");
        assert_eq!(Connection::ready().next(&small), Step::Swallow(13), "all of it is kept");
        let most = frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff");
        assert_eq!(connection.next(&most), Step::End(Reason::FLOW_CONTROL_ERROR));
    }

    #[test]
    fn h2_tells_of_the_table_s_size_before_anything_is_answered() {
        let mut connection = Connection::ready();
        let request = frame(HEADERS, ASK, 3, b"\x82");
        let size = frame(SETTINGS, 0, 0, b"\0\x01\0\0\0\0");
        assert_eq!(connection.next(&size), Step::Pass(size.len()));
        assert_eq!(connection.next(&request), Step::Pass(request.len()));
        for bytes in
            [frame(SETTINGS, ACK, 0, b""), frame(SETTINGS, ACK, 0, b""), frame(HEADERS, ASK, 1, b"\x20\x88")]
        {
            connection.server.advance(&bytes, |_| ());
        }
        connection.answer(5);
    }

    #[test]
    fn nothing_is_answered_once_h2_has_said_goodbye() {
        let mut connection = Connection::ready();
        connection.answer(3);
        let goaway = frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0");
        connection.server.rewrite(&goaway, 3, &mut Vec::new()).expect("it is one");
        let request = frame(HEADERS, ASK, 5, b"\x82");
        assert_eq!(connection.next(&request), Step::Pass(request.len()));
    }
}
