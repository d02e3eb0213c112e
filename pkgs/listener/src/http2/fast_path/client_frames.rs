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

/// A field section begins by saying that the dynamic table has no room (RFC 7541, section 6.3).
const NO_TABLE: u8 = 0b0010_0000;

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
        let section = HEAD + if head.has(WITH_PRIORITY) { 5 } else { 0 };
        if self.stateless == Stateless::Known && !head.has(PADDED) && head.whole() > section {
            let Some(first) = bytes.get(section) else { return Step::More };
            if *first == NO_TABLE {
                self.stateless = Stateless::Said;
            }
        } else if self.stateless == Stateless::Said
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
