//! The chunked transfer coding (RFC 9112, section 7.1).

/// The most bytes of chunk extensions and trailer fields in one body. The services do not read them, so clients have no
/// reason to send many. A server that reads them without a limit has the flaw of CVE-2023-39326.
const MAX_ASIDE_BYTES: usize = 16 * 1024;

/// A decoder of one body, which is passed piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked {
    state: State,
    aside: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a chunk's size, after this many digits.
    Size { size: u64, digits: u8 },
    /// In the extensions of a chunk of this size.
    Extension { size: u64 },
    /// Before the LF after the size.
    SizeEnd { size: u64 },
    /// In a chunk, with this many bytes left.
    Data { left: u64 },
    /// Before the CR after a chunk.
    DataCr,
    /// Before the LF after a chunk.
    DataLf,
    /// At the start of a line of trailers.
    Trailer,
    /// Within a line of trailers.
    TrailerLine,
    /// Before the LF of a line of trailers.
    TrailerLf,
    /// Before the final LF.
    EndLf,
    /// After the body.
    End,
}

/// The result of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A piece of the body.
    Data {
        /// The number of bytes before the piece that do not belong to the body.
        skip: usize,
        /// The length of the piece.
        length: usize,
    },
    /// No part of the body was found; more input is needed.
    More {
        /// The number of all bytes, none of which belongs to the body.
        skip: usize,
    },
    /// The end of the body.
    End {
        /// The number of bytes before the next request.
        skip: usize,
    },
}

impl Default for Chunked {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunked {
    /// A decoder before the first chunk.
    pub const fn new() -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, aside: 0 }
    }

    /// Whether the decoder is within the data of a chunk.
    pub const fn is_in_chunk(&self) -> bool {
        matches!(self.state, State::Data { .. })
    }

    /// Decodes `bytes` up to the end of the next piece of the body.
    ///
    /// # Errors
    /// When the coding is malformed. The error is the reason.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Found, &'static str> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            self.state = match (self.state, byte) {
                (State::Data { left }, _) => {
                    let length = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - length as u64;
                    self.state = if left == 0 { State::DataCr } else { State::Data { left } };
                    return Ok(Found::Data { skip: at, length });
                }
                (State::End, _) => break,
                (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                    // 15 digits are at most 2^60, so no sum of two sizes overflows.
                    if digits == 15 {
                        return Err("a chunk is too large");
                    }
                    let digit = char::from(byte).to_digit(16).unwrap_or(0);
                    State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                }
                (State::Size { digits: 0, .. }, _) => return Err("a chunk has no size"),
                (State::Size { size, .. } | State::Extension { size }, b'\r') => State::SizeEnd { size },
                (State::Size { size, .. }, b';' | b' ' | b'\t') => State::Extension { size },
                (State::Size { .. }, _) => return Err("a chunk's size is no hexadecimal number"),
                (State::Extension { .. }, b'\n') => return Err("a line ends without CR"),
                (State::Extension { size }, _) => {
                    self.aside()?;
                    State::Extension { size }
                }
                (State::SizeEnd { size: 0 }, b'\n') => State::Trailer,
                (State::SizeEnd { size }, b'\n') => State::Data { left: size },
                (State::DataCr, b'\r') => State::DataLf,
                (State::DataLf, b'\n') => State::Size { size: 0, digits: 0 },
                (State::DataCr | State::DataLf, _) => return Err("a chunk is longer than its size"),
                (State::Trailer, b'\r') => State::EndLf,
                (State::TrailerLine, b'\r') => State::TrailerLf,
                (State::Trailer | State::TrailerLine, b'\n') => return Err("a line ends without CR"),
                (State::Trailer | State::TrailerLine, _) => {
                    self.aside()?;
                    State::TrailerLine
                }
                (State::TrailerLf, b'\n') => State::Trailer,
                (State::EndLf, b'\n') => State::End,
                (State::SizeEnd { .. } | State::TrailerLf | State::EndLf, _) => {
                    return Err("a CR is followed by something else than LF");
                }
            };
            at += 1;
        }
        Ok(if self.state == State::End { Found::End { skip: at } } else { Found::More { skip: at } })
    }

    fn aside(&mut self) -> Result<(), &'static str> {
        self.aside += 1;
        if self.aside > MAX_ASIDE_BYTES { Err("too much is sent beside the body") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and the number of bytes used, when `bytes` come in pieces of `step`.
    fn decode(bytes: &[u8], step: usize) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
        let (mut chunked, mut body, mut used) = (Chunked::new(), Vec::new(), 0);
        for end in (step..bytes.len() + step).step_by(step) {
            let mut piece = &bytes[used..end.min(bytes.len())];
            loop {
                let (skip, length) = match chunked.decode(piece)? {
                    Found::Data { skip, length } => (skip, length),
                    Found::More { skip } => {
                        used += skip;
                        break;
                    }
                    Found::End { skip } => return Ok(Some((body, used + skip))),
                };
                body.extend_from_slice(&piece[skip..skip + length]);
                piece = &piece[skip + length..];
                used += skip + length;
            }
        }
        Ok(None)
    }

    #[test]
    fn bodies_are_read_alike_in_any_pieces() {
        for (bytes, body) in [
            ("0\r\n\r\nGET", ""),
            ("5\r\nhello\r\n0\r\n\r\nGET", "hello"),
            ("5\r\nhello\r\n7;a=\"b\"\r\n, world\r\n000\r\n\r\nGET", "hello, world"),
            ("A\r\n0123456789\r\n0\r\nX: y\r\nZ: 1\r\n\r\nGET", "0123456789"),
            ("a \t\r\n0123456789\r\n0\r\n\r\nGET", "0123456789"),
        ] {
            for step in 1..=bytes.len() {
                let decoded = decode(bytes.as_bytes(), step);
                assert_eq!(decoded, Ok(Some((body.into(), bytes.len() - 3))), "{bytes:?} by {step}");
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for bytes in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+5\r\nhello",
            "0x5\r\nhello",
            "5\nhello\r\n",
            "5;a\nhello\r\n",
            "5\rhello",
            "5\r\nhelloo\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\r0",
            "0\r\nX: y\n\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "1000000000000000\r\n",
        ] {
            for step in 1..=bytes.len() {
                assert!(decode(bytes.as_bytes(), step).is_err(), "{bytes:?} by {step}");
            }
        }
    }

    #[test]
    fn what_is_beside_the_body_is_bounded() {
        let extension = format!("5;{}\r\nhello\r\n", "x".repeat(MAX_ASIDE_BYTES + 1));
        assert!(decode(extension.as_bytes(), 4096).is_err());
        let trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(MAX_ASIDE_BYTES / 4 + 1));
        assert!(decode(trailers.as_bytes(), 4096).is_err());
    }

    #[test]
    fn an_unfinished_body_has_no_end() {
        for bytes in ["", "5", "5\r\nhel", "5\r\nhello\r\n0\r\n", "0\r\nX: y\r\n"] {
            assert_eq!(decode(bytes.as_bytes(), 3), Ok(None), "{bytes:?}");
        }
    }
}
