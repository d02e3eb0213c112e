//! Reads CSV with a parser of fixed buffers. A row that does not fit is refused; it is never held in memory as a whole.

use std::io::{self, Read};
use std::ops::ControlFlow;

use csv_core::ReadRecordResult;

use super::{COLUMNS, ROW_BYTES, ReadError, RowError, formula};
use crate::link::Status;
use crate::store::Record;
use crate::when::Timestamp;

/// How much input is read at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// The possible columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Domain,
    Code,
    Target,
    Title,
    Tags,
    Status,
    Redirect,
    ForwardQuery,
    Password,
    PasswordHash,
    NotBefore,
    ExpiresAt,
    MaxClicks,
    CreatedAt,
    Clicks,
}

impl Column {
    const ALL: [(&'static str, Self); 15] = [
        ("domain", Self::Domain),
        ("code", Self::Code),
        ("target", Self::Target),
        ("title", Self::Title),
        ("tags", Self::Tags),
        ("status", Self::Status),
        ("redirect", Self::Redirect),
        ("forward_query", Self::ForwardQuery),
        ("password", Self::Password),
        ("password_hash", Self::PasswordHash),
        ("not_before", Self::NotBefore),
        ("expires_at", Self::ExpiresAt),
        ("max_clicks", Self::MaxClicks),
        ("created_at", Self::CreatedAt),
        ("clicks", Self::Clicks),
    ];

    fn named(name: &str) -> Option<(&'static str, Self)> {
        Self::ALL.into_iter().find(|(known, _)| *known == name)
    }
}

/// Reads CSV, as [`super::read`].
pub(super) fn read(
    input: impl Read,
    each: &mut dyn FnMut(u64, Result<Record, RowError>) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let mut rows = Rows::new(input);
    let header = match rows.next()? {
        Some(Ok(cells)) => header(cells)?,
        Some(Err(error)) => return Err(ReadError::Header(error)),
        None => return Err(ReadError::NoTarget),
    };
    let mut number = 0;
    while let Some(cells) = rows.next()? {
        number += 1;
        if each(number, cells.and_then(|cells| record(&header, cells))).is_break() {
            break;
        }
    }
    Ok(())
}

fn header(cells: Cells<'_>) -> Result<Vec<(&'static str, Column)>, ReadError> {
    let mut columns = Vec::with_capacity(cells.len());
    for cell in cells.iter() {
        let name = cell.map_err(ReadError::Header)?.trim();
        let column = Column::named(name).ok_or_else(|| ReadError::UnknownColumn(name.to_owned()))?;
        if columns.contains(&column) {
            return Err(ReadError::RepeatedColumn(column.0));
        }
        columns.push(column);
    }
    match columns.iter().any(|(_, column)| *column == Column::Target) {
        true => Ok(columns),
        false => Err(ReadError::NoTarget),
    }
}

fn record(header: &[(&'static str, Column)], cells: Cells<'_>) -> Result<Record, RowError> {
    if cells.len() != header.len() {
        return Err(RowError::Cells { found: cells.len(), expected: header.len() });
    }
    let mut record = Record::default();
    for ((name, column), cell) in header.iter().zip(cells.iter()) {
        let text = cell?;
        if !text.is_empty() {
            set(&mut record, *column, text).map_err(|reason| RowError::Cell { column: name, reason })?;
        }
    }
    Ok(record)
}

fn set(record: &mut Record, column: Column, text: &str) -> Result<(), String> {
    let link = &mut record.link;
    match column {
        Column::Domain => link.domain = Some(text.to_owned()),
        Column::Code => link.code = Some(text.to_owned()),
        Column::Target => text.clone_into(&mut link.target),
        Column::Title => link.title = Some(unguarded(text).to_owned()),
        Column::Tags => {
            link.tags = text
                .split([' ', '|'])
                .filter(|tag| !tag.is_empty())
                .map(unguarded)
                .map(str::to_owned)
                .collect();
        }
        Column::Status => {
            link.status = match text {
                "active" => Status::Active,
                "disabled" => Status::Disabled,
                _ => return Err(format!("{text:?} is neither active nor disabled")),
            };
        }
        Column::Redirect => link.redirect = number::<u16>(text)?.try_into().map_err(str::to_owned)?,
        Column::ForwardQuery => {
            link.forward_query = match text {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return Err(format!("{text:?} is neither true nor false")),
            };
        }
        Column::Password => link.password = Some(text.to_owned()),
        Column::PasswordHash => record.password_hash = Some(text.to_owned()),
        Column::NotBefore => link.not_before = Some(instant(text)?),
        Column::ExpiresAt => link.expires_at = Some(instant(text)?),
        Column::MaxClicks => link.max_clicks = Some(number(text)?),
        Column::CreatedAt => record.created_at = Some(instant(text)?),
        Column::Clicks => record.clicks = number(text)?,
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number in range"))
}

fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|error| error.to_string())
}

/// Removes the `'` that keeps a spreadsheet from running the cell as a formula.
fn unguarded(text: &str) -> &str {
    text.strip_prefix('\'').filter(|rest| formula(rest)).unwrap_or(text)
}

/// The cells of one row.
struct Cells<'a> {
    bytes: &'a [u8],
    /// Where each cell ends in `bytes`.
    ends: &'a [usize],
}

impl<'a> Cells<'a> {
    const fn len(&self) -> usize {
        self.ends.len()
    }

    fn iter(&self) -> impl Iterator<Item = Result<&'a str, RowError>> {
        let (bytes, mut start) = (self.bytes, 0);
        self.ends.iter().map(move |&end| {
            let cell = bytes.get(start..end).unwrap_or_default();
            start = end;
            std::str::from_utf8(cell).map_err(|_| RowError::NotText)
        })
    }
}

/// Reads rows into buffers that never grow.
struct Rows<R> {
    input: R,
    parser: csv_core::Reader,
    chunk: Box<[u8]>,
    /// The part of `chunk` that is still to be parsed.
    rest: std::ops::Range<usize>,
    row: Box<[u8]>,
    ends: [usize; COLUMNS],
}

impl<R: Read> Rows<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            parser: csv_core::Reader::new(),
            chunk: vec![0; CHUNK_BYTES].into(),
            rest: 0..0,
            row: vec![0; ROW_BYTES].into(),
            ends: [0; COLUMNS],
        }
    }

    fn next(&mut self) -> Result<Option<Result<Cells<'_>, RowError>>, io::Error> {
        let (mut bytes, mut cells, mut refused) = (0, 0, None);
        loop {
            if self.rest.is_empty() {
                self.rest = 0..fill(&mut self.input, &mut self.chunk)?;
            }
            let (result, read, written, ended) = self.parser.read_record(
                &self.chunk[self.rest.clone()],
                &mut self.row[bytes..],
                &mut self.ends[cells..],
            );
            self.rest.start += read;
            bytes += written;
            cells += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                // Starting the buffers over skips the rest of the row.
                ReadRecordResult::OutputFull => {
                    refused = Some(RowError::TooLong);
                    (bytes, cells) = (0, 0);
                }
                ReadRecordResult::OutputEndsFull => {
                    refused.get_or_insert(RowError::Cells { found: COLUMNS + 1, expected: COLUMNS });
                    (bytes, cells) = (0, 0);
                }
                ReadRecordResult::Record => {
                    return Ok(Some(match refused {
                        Some(error) => Err(error),
                        None => Ok(Cells { bytes: &self.row[..bytes], ends: &self.ends[..cells] }),
                    }));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }
}

fn fill(input: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
