//! Turns HTTP/1.1 answers into HTTP/2 frames.

use super::super::frame::{DATA, END_HEADERS, END_STREAM, HEAD, HEADERS, Head, MOST};
use super::hpack;
use crate::plain::PlainAnswer;

/// Appends an answer as frames of this stream. `body` is its body if that does not follow its head. Returns the body's
/// length. None, with nothing appended, if the body exceeds `room` or the head exceeds a frame.
#[inline]
pub fn write(answer: &[u8], body: &[u8], stream: u32, room: usize, out: &mut Vec<u8>) -> Option<usize> {
    let start = out.len();
    let body = write_head(answer, body, stream, out).filter(|body| body.len() <= room.min(MOST));
    let Some(body) = body else {
        out.truncate(start);
        return None;
    };
    if !body.is_empty() {
        let head = Head { length: body.len(), kind: DATA, flags: END_STREAM, stream };
        out.extend_from_slice(&head.bytes());
        out.extend_from_slice(body);
    }
    Some(body.len())
}

/// Appends its HEADERS. Returns its body.
fn write_head<'a>(answer: &'a [u8], body: &'a [u8], stream: u32, out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let answer = PlainAnswer::read(answer)?;
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    hpack::status(out, answer.status);
    let appended = answer.fields(|name, value| hpack::line(out, name, value))?;
    let body = if body.is_empty() { appended } else { body };
    let length = out.len() - start - HEAD;
    let flags = if body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    let head = Head { length, kind: HEADERS, flags, stream };
    out[start..start + HEAD].copy_from_slice(&head.bytes());
    (length <= MOST).then_some(body)
}

#[cfg(test)]
mod tests {
    use crate::field_compression::Section;

    use super::*;

    #[test]
    fn answers_become_frames() {
        let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\nx: a: b\r\n\r\nabc";
        for (answer, flags, data) in [
            (&answer[..], END_HEADERS, &b"\0\0\x03\0\x01\0\0\0\x07abc"[..]),
            (&answer[..answer.len() - 3], END_HEADERS | END_STREAM, b""),
        ] {
            let mut out = b"before".to_vec();
            assert_eq!(write(answer, b"", 7, 3, &mut out), Some(data.len().saturating_sub(HEAD)));
            let frames = out.strip_prefix(b"before").expect("what was there is left");
            let head = Head::first(frames).expect("a frame");
            assert_eq!((head.kind, head.flags, head.stream), (HEADERS, flags, 7));
            let mut section = Section::new();
            let read = hpack::Decoder::default().read(&mut section, &frames[HEAD..head.whole()], 16 << 10);
            assert_eq!(read, Ok(true));
            let lines: Vec<_> = section.lines().collect();
            let expected: [(&[u8], &[u8]); 3] =
                [(b":status", b"200"), (b"content-length", b"3"), (b"x", b"a: b")];
            assert_eq!((lines, &frames[head.whole()..]), (expected.to_vec(), data));
        }
    }

    #[test]
    fn what_has_no_room_is_not_written() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(MOST));
        let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "y".repeat(MOST + 1));
        for (answer, room, is_written) in [
            ("HTTP/1.1 200 OK\r\n\r\nabc", 2, false),
            ("HTTP/1.1 200 OK\r\n\r\nabc", 3, true),
            ("HTTP/1.1 200 OK\r\n\r\n", 0, true),
            (&long, MOST, false),
            (&large, MOST + 1, false),
            (&large[..large.len() - 1], MOST, true),
            ("no answer", MOST, false),
        ] {
            let mut out = b"before".to_vec();
            assert_eq!(write(answer.as_bytes(), b"", 1, room, &mut out).is_some(), is_written);
            assert_eq!(out.len() > 6, is_written);
            // The same with the body by itself.
            let (head, body) = answer.split_at(answer.find("\r\n\r\n").map_or(answer.len(), |end| end + 4));
            let mut apart = b"before".to_vec();
            assert_eq!(write(head.as_bytes(), body.as_bytes(), 1, room, &mut apart).is_some(), is_written);
            assert_eq!(apart, out);
        }
    }
}
