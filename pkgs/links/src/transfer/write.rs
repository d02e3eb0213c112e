//! Writes CSV and JSON.

use std::borrow::Cow;
use std::io::{self, Write};

use super::{Format, formula};
use crate::link::Status;
use crate::store::Record;
use crate::when::Timestamp;

/// The columns, in order. The first is written only if there are domains.
const COLUMNS: [&str; 14] = [
    "domain",
    "code",
    "target",
    "title",
    "tags",
    "status",
    "redirect",
    "forward_query",
    "not_before",
    "expires_at",
    "max_clicks",
    "created_at",
    "clicks",
    "password_hash",
];

/// Writes links as they come. It buffers about one row.
pub struct Writer<W: Write>(Inner<W>);

enum Inner<W: Write> {
    Csv(Box<csv::Writer<W>>, &'static [&'static str]),
    Json { output: W, first: bool },
}

impl<W: Write> Writer<W> {
    /// Starts a file: a CSV header, with a column for domains if there are any, or the array's bracket.
    pub fn new(format: Format, with_domains: bool, mut output: W) -> io::Result<Self> {
        Ok(Self(match format {
            Format::Csv => {
                let mut writer = csv::WriterBuilder::new().buffer_capacity(4096).from_writer(output);
                let columns = &COLUMNS[usize::from(!with_domains)..];
                writer.write_record(columns).map_err(as_io)?;
                Inner::Csv(Box::new(writer), columns)
            }
            Format::Json => {
                output.write_all(b"[")?;
                Inner::Json { output, first: true }
            }
        }))
    }

    /// Writes one link.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        match &mut self.0 {
            Inner::Csv(writer, columns) => {
                let cells = cells(record);
                let left_out = cells.len() - columns.len();
                writer.write_record(cells[left_out..].iter().map(|cell| cell.as_bytes())).map_err(as_io)
            }
            Inner::Json { output, first } => {
                output.write_all(if std::mem::take(first) { b"\n" } else { b",\n" })?;
                Ok(serde_json::to_writer(output, record)?)
            }
        }
    }

    /// Ends the file and returns the output.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Inner::Csv(writer, _) => writer.into_inner().map_err(csv::IntoInnerError::into_error),
            Inner::Json { mut output, .. } => {
                output.write_all(b"\n]\n")?;
                output.flush()?;
                Ok(output)
            }
        }
    }
}

/// The output's own error. The `csv` crate's conversion would lose the error's kind.
fn as_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

fn cells(record: &Record) -> [Cow<'_, str>; COLUMNS.len()] {
    let link = &record.link;
    [
        text(&link.domain),
        text(&link.code),
        Cow::Borrowed(&link.target),
        link.title.as_deref().map(guarded).unwrap_or_default(),
        link.tags.iter().map(|tag| guarded(tag)).collect::<Vec<_>>().join(" ").into(),
        Cow::Borrowed(match link.status {
            Status::Active => "active",
            Status::Disabled => "disabled",
        }),
        link.redirect.code().to_string().into(),
        Cow::Borrowed(if link.forward_query { "true" } else { "false" }),
        instant(link.not_before),
        instant(link.expires_at),
        link.max_clicks.map(|limit| limit.to_string()).unwrap_or_default().into(),
        instant(record.created_at),
        record.clicks.to_string().into(),
        text(&record.password_hash),
    ]
}

fn text(value: &Option<String>) -> Cow<'_, str> {
    Cow::Borrowed(value.as_deref().unwrap_or_default())
}

fn instant(value: Option<Timestamp>) -> Cow<'static, str> {
    value.map(|instant| instant.to_string()).unwrap_or_default().into()
}

/// Adds a `'` to a text that a spreadsheet would run as a formula.
fn guarded(text: &str) -> Cow<'_, str> {
    if formula(text) { format!("'{text}").into() } else { text.into() }
}
