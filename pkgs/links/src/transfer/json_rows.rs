//! Reads JSON: finds the end of each top-level object without parsing it, and then parses that object. So one bad row
//! leaves the others readable, and no row takes more memory than its limit.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;

use super::{ROW_BYTES, ReadError, Row, RowError};
use crate::store::Record;

/// What may come between rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// At the start: an array or a first object.
    Anything,
    /// After `[`: an object or `]`.
    FirstItem,
    /// After an object in an array: `,` or `]`.
    Separator,
    /// After `,`: an object.
    Item,
    /// After an object outside an array: another.
    Line,
    /// After `]`: nothing.
    Nothing,
}

impl Expect {
    const fn in_words(self) -> &'static str {
        match self {
            Self::Anything => "'[' or '{'",
            Self::FirstItem => "'{' or ']'",
            Self::Separator => "',' or ']'",
            Self::Item | Self::Line => "'{'",
            Self::Nothing => "the end",
        }
    }
}

/// The object that is being collected.
struct Object {
    bytes: Vec<u8>,
    too_long: bool,
    /// The number of open brackets.
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Object {
    /// Adds a byte. Returns true if it was the object's last.
    fn take(&mut self, byte: u8) -> bool {
        if self.bytes.len() < ROW_BYTES {
            self.bytes.push(byte);
        } else {
            self.too_long = true;
        }
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }

    /// Parses the object, and resets the state for the next one.
    fn finish(&mut self) -> Result<Record, RowError> {
        let parsed = match std::mem::take(&mut self.too_long) {
            true => Err(RowError::TooLong),
            false => serde_json::from_slice::<Row>(&self.bytes).map(Record::from).map_err(RowError::Json),
        };
        self.bytes.clear();
        parsed
    }
}

/// Reads JSON, as [`super::read`].
pub(super) fn read(
    input: impl Read,
    each: &mut dyn FnMut(u64, Result<Record, RowError>) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let mut input = BufReader::with_capacity(ROW_BYTES, input);
    let mut object =
        Object { bytes: Vec::new(), too_long: false, depth: 0, in_string: false, escaped: false };
    let mut expect = Expect::Anything;
    let mut row = 0;
    loop {
        let chunk = match input.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        if chunk.is_empty() {
            break;
        }
        for &byte in chunk {
            if object.depth > 0 {
                if object.take(byte) {
                    row += 1;
                    if each(row, object.finish()).is_break() {
                        return Ok(());
                    }
                }
                continue;
            }
            expect = match (expect, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => continue,
                (Expect::Anything, b'[') => Expect::FirstItem,
                (Expect::FirstItem | Expect::Item, b'{') => {
                    object.take(byte);
                    Expect::Separator
                }
                (Expect::Anything | Expect::Line, b'{') => {
                    object.take(byte);
                    Expect::Line
                }
                (Expect::Separator, b',') => Expect::Item,
                (Expect::FirstItem | Expect::Separator, b']') => Expect::Nothing,
                _ => {
                    return Err(ReadError::Syntax { row, expected: expect.in_words(), found: byte.into() });
                }
            };
        }
        let consumed = chunk.len();
        input.consume(consumed);
    }
    match (object.depth, expect) {
        (0, Expect::Anything | Expect::Line | Expect::Nothing) => Ok(()),
        _ => Err(ReadError::Truncated(row)),
    }
}
