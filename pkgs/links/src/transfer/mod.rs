//! Links as CSV and JSON: import reads them and export writes them, in constant memory for any size.
//!
//! CSV has a header whose columns have the names of the JSON fields, in any order. Only `target` is required, and an
//! empty cell is an absent field. Tags are separated by spaces or `|`. JSON is an array of objects, or a sequence of
//! objects (NDJSON).
//!
//! A title or tag that a spreadsheet would run as a formula (it starts with `=`, `+`, `-`, `@`, tab or carriage
//! return) is exported to CSV with a leading `'`, which import removes. So files are safe to open, and reimporting them
//! changes nothing.

mod csv_rows;
mod import;
mod json_rows;
mod write;

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::link::{NewLink, RedirectStatus, Status};
use crate::store::Record;
use crate::when::Timestamp;

pub use import::{Cause, ImportError, ImportOptions, import};
pub use write::Writer;

/// The longest row, in bytes. A link with every field at its limit is well below it.
pub const ROW_BYTES: usize = 64 * 1024;

/// The most columns of a CSV file; fewer exist.
pub const COLUMNS: usize = 32;

/// The format of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// RFC 4180, UTF-8, with a header.
    Csv,
    /// An array of objects. Reading also accepts NDJSON.
    Json,
}

impl Format {
    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

/// An unknown format.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither csv nor json")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat(text.to_owned())),
        }
    }
}

/// Why a row is refused. Later rows are still read.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// It is longer than [`ROW_BYTES`].
    #[error("longer than {ROW_BYTES} bytes")]
    TooLong,
    /// It has more or fewer cells than the header.
    #[error("{found} cells under a header of {expected}")]
    Cells {
        /// The number of the row's cells. [`COLUMNS`] + 1 stands for any number above [`COLUMNS`].
        found: usize,
        /// The number of the header's cells.
        expected: usize,
    },
    /// It is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// A cell is invalid for its column.
    #[error("{column}: {reason}")]
    Cell {
        /// The column's name.
        column: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// It is not an object with the fields of a link.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The CSV header has an unknown column.
    #[error("there is no column {0:?}")]
    UnknownColumn(String),
    /// The CSV header has a column twice.
    #[error("the column {0:?} is there twice")]
    RepeatedColumn(&'static str),
    /// The CSV header lacks the one required column, or there is no header.
    #[error("the header has no column \"target\"")]
    NoTarget,
    /// The CSV header is malformed.
    #[error("the header cannot be read: {0}")]
    Header(RowError),
    /// The JSON is neither an array of objects nor a sequence of objects.
    #[error("after row {row}: expected {expected}, found {found:?}")]
    Syntax {
        /// The number of the last complete row; 0 if there is none.
        row: u64,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: char,
    },
    /// The JSON ends before its array or last object does.
    #[error("the input ends in the middle, after row {0}")]
    Truncated(u64),
}

/// Reads rows and passes each to `each` with its number (from 1, without the header), until the input ends or `each`
/// stops it.
pub fn read(
    format: Format,
    input: impl Read,
    each: &mut dyn FnMut(u64, Result<Record, RowError>) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    match format {
        Format::Csv => csv_rows::read(input, each),
        Format::Json => json_rows::read(input, each),
    }
}

/// A row as JSON. It has the fields of [`Record`] but no flattening, which would accept unknown fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Row {
    domain: Option<String>,
    code: Option<String>,
    target: String,
    title: Option<String>,
    tags: Vec<String>,
    status: Status,
    redirect: RedirectStatus,
    forward_query: bool,
    password: Option<String>,
    password_hash: Option<String>,
    not_before: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    max_clicks: Option<u64>,
    created_at: Option<Timestamp>,
    clicks: u64,
}

impl From<Row> for Record {
    fn from(row: Row) -> Self {
        Self {
            link: NewLink {
                domain: row.domain,
                code: row.code,
                target: row.target,
                title: row.title,
                tags: row.tags,
                status: row.status,
                redirect: row.redirect,
                forward_query: row.forward_query,
                password: row.password,
                not_before: row.not_before,
                expires_at: row.expires_at,
                max_clicks: row.max_clicks,
            },
            created_at: row.created_at,
            clicks: row.clicks,
            password_hash: row.password_hash,
        }
    }
}

/// Whether a spreadsheet would run a cell with this text as a formula, or a leading `'` prevents that.
fn formula(text: &str) -> bool {
    text.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as `number: code` or `number: reason`, and how reading ended.
    fn rows(format: Format, input: &[u8]) -> (Vec<String>, Result<(), String>) {
        let mut rows = Vec::new();
        let end = read(format, input, &mut |row, record| {
            rows.push(match record {
                Ok(record) => format!("{row}: {}", record.link.code.unwrap_or_default()),
                Err(error) => format!("{row}: {error}"),
            });
            ControlFlow::Continue(())
        });
        (rows, end.map_err(|error| error.to_string()))
    }

    fn one(format: Format, input: &str) -> Record {
        let mut found = None;
        read(format, input.as_bytes(), &mut |_, record| {
            found = Some(record.unwrap());
            ControlFlow::Break(())
        })
        .unwrap();
        found.unwrap()
    }

    #[test]
    fn a_bad_csv_row_leaves_the_others_readable() {
        let long = "x".repeat(ROW_BYTES);
        let wide = ",".repeat(COLUMNS);
        let text = format!(
            "\u{feff}target,code,redirect\n\
             https://a.example/,a,\n\
             https://b.example/,b,404\n\
             {long},c,\n\
             https://d.example/\n\
             {wide}\n\
             \"https://e.example/\n\",e,301\r\n\
             https://f.example/,f,eight\n\
             https://g.example/,g,308"
        );
        let mut bytes = text.into_bytes();
        bytes.extend(b"\nhttps://h.example/\xff,h,");
        let (rows, end) = rows(Format::Csv, &bytes);
        assert_eq!(end, Ok(()));
        assert_eq!(
            rows,
            [
                "1: a",
                "2: redirect: a redirect is 301, 302, 307 or 308",
                "3: longer than 65536 bytes",
                "4: 1 cells under a header of 3",
                "5: 33 cells under a header of 32",
                "6: e",
                "7: redirect: \"eight\" is no number in range",
                "8: g",
                "9: not UTF-8",
            ]
        );
    }

    #[test]
    fn a_csv_header_must_make_sense() {
        for (header, why) in [
            ("", "the header has no column \"target\""),
            ("code,title\n", "the header has no column \"target\""),
            ("target,colour\n", "there is no column \"colour\""),
            ("target,code,target\n", "the column \"target\" is there twice"),
        ] {
            assert_eq!(rows(Format::Csv, header.as_bytes()), (Vec::new(), Err(why.to_owned())), "{header:?}");
        }
    }

    #[test]
    fn a_bad_json_row_leaves_the_others_readable() {
        let long = "x".repeat(ROW_BYTES);
        let text = format!(
            r#" [{{"target":"t","code":"a"}}, {{"target":"{long}"}},{{"target":"t","colour":1}},
                {{"target":"}}{{\"]","code":"d"}}, {{"target":}}, {{"target":"t","code":"f"}} ]
            "#
        );
        let (rows, end) = rows(Format::Json, text.as_bytes());
        assert_eq!(end, Ok(()));
        assert_eq!(rows.len(), 6);
        for (row, start) in
            ["1: a", "2: longer than 65536", "3: unknown field `colour`", "4: d", "5: expected", "6: f"]
                .iter()
                .enumerate()
        {
            assert!(rows[row].starts_with(start), "{}", rows[row]);
        }
    }

    #[test]
    fn json_may_be_an_array_or_objects_one_after_another() {
        let (a, b) = (r#"{"target":"t","code":"a"}"#, r#"{"target":"t","code":"b"}"#);
        for (text, count, end) in [
            (String::new(), 0, Ok(())),
            ("[]".to_owned(), 0, Ok(())),
            (format!("[{a},{b}]\n"), 2, Ok(())),
            (format!("{a}\n{b}\n"), 2, Ok(())),
            (format!("{a}{b}"), 2, Ok(())),
            (format!("[{a} {b}]"), 1, Err("after row 1: expected ',' or ']', found '{'")),
            (format!("[{a},]"), 1, Err("after row 1: expected '{', found ']'")),
            (format!("[{a}],"), 1, Err("after row 1: expected the end, found ','")),
            (format!("{a},{b}"), 1, Err("after row 1: expected '{', found ','")),
            ("12".to_owned(), 0, Err("after row 0: expected '[' or '{', found '1'")),
            (format!("[{a},{}", &b[..9]), 1, Err("the input ends in the middle, after row 1")),
            (format!("[{a}"), 1, Err("the input ends in the middle, after row 1")),
        ] {
            let (rows, found) = rows(Format::Json, text.as_bytes());
            assert_eq!((rows.len(), found), (count, end.map_err(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let full = Record {
            link: NewLink {
                domain: Some("b.example".to_owned()),
                code: Some("spring".to_owned()),
                target: "https://example.com/?q=\"a,b\"&r=\u{fc}".to_owned(),
                title: Some("=HYPERLINK(\"x\"),\r\n'new line'".to_owned()),
                tags: vec!["+a".to_owned(), "b".to_owned()],
                status: Status::Disabled,
                redirect: RedirectStatus::PermanentRedirect,
                forward_query: true,
                password: None,
                not_before: Some(Timestamp(1_700_000_000)),
                expires_at: Some(Timestamp(1_800_000_000)),
                max_clicks: Some(u64::MAX),
            },
            created_at: Some(Timestamp(1_600_000_000)),
            clicks: 42,
            password_hash: Some("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA".to_owned()),
        };
        let plain = Record {
            link: NewLink { target: "https://example.com/".to_owned(), ..NewLink::default() },
            ..Record::default()
        };
        for format in [Format::Csv, Format::Json] {
            let mut writer = Writer::new(format, true, Vec::new()).unwrap();
            for record in [&full, &plain] {
                writer.write(record).unwrap();
            }
            let bytes = writer.finish().unwrap();
            let mut back = Vec::new();
            read(format, bytes.as_slice(), &mut |_, record| {
                back.push(record.unwrap());
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(back, [full.clone(), plain.clone()], "{format:?}");
        }
    }

    #[test]
    fn an_empty_file_written_is_an_empty_file_read() {
        for format in [Format::Csv, Format::Json] {
            let bytes = Writer::new(format, true, Vec::new()).unwrap().finish().unwrap();
            assert_eq!(rows(format, &bytes), (Vec::new(), Ok(())), "{format:?}");
        }
    }

    #[test]
    fn csv_keeps_spreadsheets_from_running_text_and_gives_it_back_unchanged() {
        for title in ["=1+1", "+1", "-1", "@x", "\tx", "'=1", "''=1", "'quoted'", "plain", "'"] {
            let record = Record {
                link: NewLink { target: "t".to_owned(), title: Some(title.to_owned()), ..NewLink::default() },
                ..Record::default()
            };
            let mut writer = Writer::new(Format::Csv, true, Vec::new()).unwrap();
            writer.write(&record).unwrap();
            let text = String::from_utf8(writer.finish().unwrap()).unwrap();
            assert!(!text.contains(",=") && !text.contains(",+") && !text.contains(",@"), "{text}");
            assert_eq!(one(Format::Csv, &text), record);
        }
    }

    #[test]
    fn a_row_however_deep_or_wide_costs_itself_alone() {
        let deep = |open: &str, close: &str| format!("{}{}", open.repeat(20_000), close.repeat(20_000));
        let wide: String = (0..5_000).map(|n| format!(r#","f{n}":1"#)).collect();
        for row in [
            format!(r#"{{"target":"https://a/","tags":{}}}"#, deep("[", "]")),
            format!(r#"{{"target":"https://a/","x":{}1{}}}"#, "{\"x\":".repeat(10_000), "}".repeat(10_000)),
            deep(r#"{"target":"#, "}"),
            format!(r#"{{"target":"https://a/"{wide}}}"#),
            format!(r#"{{"target":"{}"}}"#, "x".repeat(10 * ROW_BYTES)),
        ] {
            let file = format!("{row}\n{{\"target\":\"https://b/\"}}\n");
            let mut rows = Vec::new();
            read(Format::Json, file.as_bytes(), &mut |_, row| {
                rows.push(row.map(|record| record.link.target));
                ControlFlow::Continue(())
            })
            .unwrap();
            assert!(
                matches!(&rows[..], [Err(_), Ok(target)] if target == "https://b/"),
                "{row:.60}: {rows:?}"
            );
        }
    }

    #[test]
    fn where_there_are_no_domains_nothing_is_written_of_them() {
        let link = NewLink { target: "t".to_owned(), code: Some("c".to_owned()), ..NewLink::default() };
        let record = Record { link, ..Record::default() };
        for (format, with_domains, start) in [
            (Format::Csv, false, "code,target,"),
            (Format::Csv, true, "domain,code,target,"),
            (Format::Json, false, "[\n{\"code\":"),
            (Format::Json, true, "[\n{\"code\":"),
        ] {
            let mut writer = Writer::new(format, with_domains, Vec::new()).unwrap();
            writer.write(&record).unwrap();
            let text = String::from_utf8(writer.finish().unwrap()).unwrap();
            assert!(text.starts_with(start), "{text}");
            assert_eq!(one(format, &text), record);
        }
    }

    #[test]
    fn reading_stops_when_told_to() {
        let mut seen = 0;
        read(Format::Json, &b"{\"target\":\"a\"}{\"target\":\"b\"}"[..], &mut |_, _| {
            seen += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(seen, 1);
    }
}
