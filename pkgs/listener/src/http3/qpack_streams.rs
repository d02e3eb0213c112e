//! The client's QPACK streams (RFC 9204, section 4.2). h3 accepts them, but never reads them, so that whatever a client
//! sends on them would stay in memory.
//!
//! There is no dynamic table on either side, since h3 permits the client none and uses none itself. So they have next
//! to nothing to say.

use std::future::poll_fn;

use bytes::Bytes;
use h3::error::Code;

use super::error_code::varint;
use crate::quic_driver::{Connection, ReadError, RecvStream};

/// Set Dynamic Table Capacity, to 0 (RFC 9204, section 4.3.1).
const NO_CAPACITY: u8 = 0x20;
/// Stream Cancellation (RFC 9204, section 4.4.2), which the two highest bits say.
const CANCELLATION: u8 = 0x40;
const INSTRUCTION: u8 = 0xc0;
/// The same with the other bits set, so that the stream's id goes on in the following bytes, as long as these have the
/// highest bit (RFC 9204, section 4.1.1).
const CANCELLATION_GOES_ON: u8 = 0x7f;
const GOES_ON: u8 = 0x80;

/// In how many bytes of seven bits each an integer may go on: it has 62 bits at most.
const MOST_CONTINUED: u8 = 9;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QpackStream {
    /// With instructions for this side's decoder.
    Encoder,
    /// With answers for this side's encoder.
    Decoder,
}

impl QpackStream {
    /// Reads the stream until the connection ends, and ends the connection if the client does what it must not.
    /// `received` was read before.
    pub(super) async fn read(self, quic: Connection, mut stream: RecvStream, mut received: Bytes) {
        let mut instructions = Instructions::on(self);
        let (code, reason) = loop {
            // Not kept while it waits: a single byte would keep some datagrams.
            if !instructions.allow(&std::mem::take(&mut received)) {
                break match self {
                    Self::Encoder => {
                        (Code::QPACK_ENCODER_STREAM_ERROR, "there is no dynamic table to change")
                    }
                    Self::Decoder => (Code::QPACK_DECODER_STREAM_ERROR, "no dynamic table was changed"),
                };
            }
            let mut pieces = [Bytes::new()];
            match poll_fn(|cx| stream.poll_read(cx, &mut pieces)).await {
                Err(ReadError::Lost(_)) => return,
                Ok(0) | Err(ReadError::Reset(_) | ReadError::Closed) => {
                    break (Code::H3_CLOSED_CRITICAL_STREAM, "a QPACK stream has ended");
                }
                Ok(_) => [received] = pieces,
            }
        };
        quic.close(varint(code.value()), reason.as_bytes());
    }
}

/// Checks the instructions on a stream.
struct Instructions {
    stream: QpackStream,
    /// In how many bytes an unfinished integer has gone on.
    continued: Option<u8>,
}

impl Instructions {
    fn on(stream: QpackStream) -> Self {
        Self { stream, continued: None }
    }

    /// Whether these are allowed to follow. They may be cut anywhere.
    fn allow(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| self.allow_byte(*byte))
    }

    fn allow_byte(&mut self, byte: u8) -> bool {
        match (self.stream, self.continued) {
            (QpackStream::Encoder, _) => byte == NO_CAPACITY,
            (QpackStream::Decoder, None) => {
                self.continued = (byte == CANCELLATION_GOES_ON).then_some(0);
                byte & INSTRUCTION == CANCELLATION
            }
            (QpackStream::Decoder, Some(count)) => {
                self.continued = (byte & GOES_ON != 0).then_some(count + 1);
                count < MOST_CONTINUED
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::QpackStream::{Decoder, Encoder};
    use super::*;

    #[test]
    fn only_what_needs_no_dynamic_table_is_allowed() {
        let cases: &[(QpackStream, &[u8], bool)] = &[
            (Encoder, &[], true),
            (Encoder, &[0x20, 0x20], true),
            // A capacity, an entry by a name in a table and by one of its own, and a duplicate.
            (Encoder, &[0x20, 0x21], false),
            (Encoder, &[0x3f, 0x00], false),
            (Encoder, &[0xc0, 0x00], false),
            (Encoder, &[0x40, 0x00], false),
            (Encoder, &[0x00], false),
            (Decoder, &[], true),
            (Decoder, &[0x40, 0x7e], true),
            (Decoder, &[0x7f, 0x00, 0x44], true),
            // The largest integer that has to be understood, and one in more bytes.
            (Decoder, &[0x7f, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f], true),
            (Decoder, &[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], false),
            // An acknowledgement, and an increment.
            (Decoder, &[0x40, 0x80], false),
            (Decoder, &[0x7f, 0x80, 0x01, 0x80], false),
            (Decoder, &[0x00], false),
            (Decoder, &[0x01], false),
        ];
        for &(stream, bytes, expected) in cases {
            assert_eq!(Instructions::on(stream).allow(bytes), expected, "{stream:?} {bytes:x?}");
            let mut instructions = Instructions::on(stream);
            let bytewise = bytes.chunks(1).all(|byte| instructions.allow(byte));
            assert_eq!(bytewise, expected, "{stream:?} {bytes:x?}");
        }
    }
}
