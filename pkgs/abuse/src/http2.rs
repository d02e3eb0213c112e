//! An HTTP/2 client (RFC 9113) that sends the frames it is given, and doesn't compress headers (which RFC 7541
//! permits).

use std::io;

use crate::conversation::Socket;

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A frame as bytes.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The preface and the settings. `window` is how much the server may send on each stream before the client grants more.
/// The connection gets the same window, if that is more than its initial one.
#[must_use]
pub fn hello(window: u32) -> Vec<u8> {
    let mut hello = PREFACE.to_vec();
    let mut setting = 4_u16.to_be_bytes().to_vec();
    setting.extend_from_slice(&window.to_be_bytes());
    hello.extend(frame(SETTINGS, 0, 0, &setting));
    if window > 65_535 {
        hello.extend(frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes()));
    }
    hello
}

/// A request's HEADERS frame. `end` says whether the request ends with it.
#[must_use]
pub fn request(stream: u32, method: &str, path: &str, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    let mut block = Vec::new();
    for (name, value) in pseudo.iter().chain(fields) {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("short fields"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS | if end { END_STREAM } else { 0 }, stream, &block)
}

/// Part of a body.
#[must_use]
pub fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, bytes)
}

/// Resets a stream.
#[must_use]
pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// A ping that has to be answered.
#[must_use]
pub fn ping() -> Vec<u8> {
    frame(PING, 0, 0, b"12345678")
}

/// The status at the start of a header block (RFC 7541).
fn status_of(block: &[u8]) -> Option<u16> {
    match *block {
        // Appendix A: an entry of the static table with a status.
        [index @ 0x88..=0x8e, ..] => Some([200, 204, 206, 304, 400, 404, 500][usize::from(index) - 0x88]),
        // Section 6.2: another status under the static table's name, with Huffman coding or without.
        [0x08 | 0x18 | 0x48, length, ref rest @ ..] => {
            let value = rest.get(..usize::from(length & 0x7f))?;
            if length & 0x80 == 0 { std::str::from_utf8(value).ok()?.parse().ok() } else { digits(value) }
        }
        _ => None,
    }
}

/// Decodes three digits in Huffman coding (RFC 7541, appendix B). The digits 0 to 2 have five bits, the others six.
fn digits(code: &[u8]) -> Option<u16> {
    let bits = code.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    let mut left = u32::try_from(8 * code.len()).ok().filter(|bits| *bits <= 24)?;
    let mut next = |count: u32| {
        left = left.checked_sub(count)?;
        Some(bits >> left & ((1 << count) - 1))
    };
    let mut number = 0;
    for _ in 0..3 {
        let digit = match next(5)? {
            short @ 0..=2 => short,
            long => (long << 1 | next(1)?).checked_sub(0x19 - 3).filter(|digit| (3..=9).contains(digit))?,
        };
        number = number * 10 + digit;
    }
    u16::try_from(number).ok()
}

/// The status of the answer to a GET, once the whole answer has arrived.
///
/// # Errors
/// When there is none, or it doesn't start with a status.
pub fn get(stream: &mut impl Socket, path: &str) -> io::Result<u16> {
    stream.tcp().set_read_timeout(Some(crate::program::PATIENCE))?;
    stream.write_all(&hello(1 << 24))?;
    stream.write_all(&request(1, "GET", path, &[], true))?;
    stream.flush()?;
    let mut status = None;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        let (kind, flags) = (head[3], head[4]);
        match kind {
            SETTINGS if flags & ACK == 0 => {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?;
                stream.flush()?;
            }
            HEADERS => status = status_of(&payload),
            RST_STREAM | GOAWAY => return Err(io::Error::other(format!("frame {kind}: {payload:?}"))),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            return status.ok_or_else(|| io::Error::other("no status that is known"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_however_it_is_written() {
        for (block, status) in [
            (&b"\x88"[..], Some(200)),
            (b"\x8d\x00", Some(404)),
            (b"\x48\x82\x64\x02", Some(302)),
            (b"\x08\x03307", Some(307)),
            (b"\x48\x83\x64\x0e\xff", Some(307)),
            (b"\x48\x82\x64", None),
            (b"\x48\x81\xff", None),
            (b"\x82", None),
            (b"", None),
        ] {
            assert_eq!(status_of(block), status, "{block:?}");
        }
    }
}
