//! The rules for any imported file: rows are numbered in order, the rows do not depend on the pieces in which they
//! arrive, and accepted rows come back unchanged from an export.

use std::io::{self, Read};
use std::ops::ControlFlow;

use links::store::Record;
use links::transfer::{Format, Writer, read};
use links::when::Timestamp;

/// A reader that returns a few bytes at a time.
struct ThreeAtATime<'b>(&'b [u8]);

impl Read for ThreeAtATime<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = buffer.len().min(3);
        self.0.read(&mut buffer[..size])
    }
}

/// The rows as people see them, the accepted records among them, and how reading ended.
fn rows(format: Format, input: impl Read) -> (Vec<Result<Record, String>>, Result<(), String>) {
    let mut rows = Vec::new();
    let end = read(format, input, &mut |number, row| {
        rows.push(row.map_err(|error| error.to_string()));
        assert_eq!(number, rows.len() as u64);
        ControlFlow::Continue(())
    });
    (rows, end.map_err(|error| error.to_string()))
}

/// Checks these rules for one input.
pub fn check(format: Format, bytes: &[u8]) {
    // A span such as `7d` counts from now, so results may differ if the clock has advanced. Only then are they compared
    // again.
    let found = loop {
        let begun = Timestamp::now();
        let (whole, pieces) = (rows(format, bytes), rows(format, ThreeAtATime(bytes)));
        if whole == pieces {
            break whole.0;
        }
        assert_ne!(Timestamp::now(), begun, "whole {whole:?}, in pieces {pieces:?}");
    };

    let records: Vec<_> = found.into_iter().filter_map(Result::ok).collect();
    let mut writer = Writer::new(format, true, Vec::new()).expect("memory takes everything");
    for record in &records {
        writer.write(record).expect("memory takes everything");
    }
    let written = writer.finish().expect("memory takes everything");
    let (again, end) = rows(format, written.as_slice());
    assert_eq!(end, Ok(()));
    assert_eq!(again, records.into_iter().map(Ok).collect::<Vec<_>>());
}
