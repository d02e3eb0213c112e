//! Splits a file into pieces of a thousand rows, so that the console knows their number and can show progress.

use std::fmt;

use csv::ReaderBuilder;
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

/// How many rows are sent at once. links stores them in one transaction, which takes about 50 ms.
const PIECE: usize = 1_000;

/// The longest header line, in bytes. It is repeated before each piece. All column names together are far shorter.
const NAMES_BYTES: usize = 4 << 10;

/// The rows of a file, in a format that links accepts.
pub(crate) struct Rows {
    pub(crate) media_type: &'static str,
    /// The pieces to send, and how many rows each has.
    pub(crate) pieces: Vec<(Vec<u8>, u64)>,
}

impl Rows {
    /// Reads a CSV file. Each piece starts with the header line.
    pub(crate) fn of_csv(file: &[u8]) -> Result<Self, String> {
        let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
        let mut begins = Vec::new();
        for record in reader.byte_records() {
            let record = record.map_err(|error| error.to_string())?;
            let begin = record.position().map_or(0, csv::Position::byte);
            begins.push(usize::try_from(begin).unwrap_or(usize::MAX).min(file.len()));
        }
        // The end of the header line, which is the end of the file if there are no rows.
        let first = begins.get(1).copied().unwrap_or(file.len());
        let names = &file[..first];
        if names.len() > NAMES_BYTES {
            return Err(format!("the line of names has more than {NAMES_BYTES} bytes"));
        }
        let rows = begins.get(1..).unwrap_or_default();
        let ends = rows.chunks(PIECE).skip(1).map(|next| next[0]).chain([file.len()]);
        let pieces = rows.chunks(PIECE).zip(ends).map(|(rows, end)| {
            // The file may have nothing but the header line.
            ([names, b"\n", &file[rows[0]..end]].concat(), rows.len() as u64)
        });
        let pieces: Vec<_> = pieces.collect();
        // Without rows, send the file unchanged. links itself refuses an invalid header line.
        let alone = pieces.is_empty().then(|| (file.to_vec(), 0));
        Ok(Self { media_type: "text/csv", pieces: pieces.into_iter().chain(alone).collect() })
    }

    /// Reads JSON, which is either an array or one object per line. Rows stay text, since their values would take up to
    /// a hundred times as much memory.
    pub(crate) fn of_json(file: &[u8]) -> Result<Self, String> {
        let mut pieces = JsonPieces::default();
        let mut reader = Deserializer::from_slice(file);
        let read = if file.trim_ascii_start().starts_with(b"[") {
            reader.deserialize_seq(&mut pieces).and_then(|()| reader.end())
        } else {
            reader.into_iter().try_for_each(|row| row.map(|row| pieces.push(row)))
        };
        read.map_err(|error| error.to_string())?;
        Ok(Self { media_type: "application/x-ndjson", pieces: pieces.0 })
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> u64 {
        self.pieces.iter().map(|(_, count)| count).sum()
    }
}

/// The pieces of a JSON file, made while it is read.
#[derive(Default)]
struct JsonPieces(Vec<(Vec<u8>, u64)>);

impl JsonPieces {
    fn push(&mut self, row: &RawValue) {
        let row = row.get().as_bytes();
        match self.0.last_mut() {
            Some((piece, count)) if *count < PIECE as u64 => {
                piece.push(b'\n');
                piece.extend_from_slice(row);
                *count += 1;
            }
            _ => self.0.push((row.to_vec(), 1)),
        }
    }
}

impl<'de> Visitor<'de> for &mut JsonPieces {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        while let Some(row) = rows.next_element()? {
            self.push(row);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces as text, and how many rows each has.
    fn told(rows: Result<Rows, String>) -> Vec<(String, u64)> {
        let pieces = rows.expect("rows").pieces.into_iter();
        pieces.map(|(bytes, count)| (String::from_utf8(bytes).expect("text"), count)).collect()
    }

    #[test]
    fn each_piece_of_a_file_has_its_names_and_whole_rows() {
        let text = "code,title\r\n".to_owned() + &"a,\"two\r\nlines\"\r\n\r\n".repeat(2_500);
        let pieces = told(Rows::of_csv(text.as_bytes()));
        assert_eq!(pieces.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1_000, 1_000, 500]);
        for (piece, count) in &pieces {
            let mut reader = csv::Reader::from_reader(piece.as_bytes());
            assert_eq!(reader.headers().expect("names"), vec!["code", "title"]);
            let rows: Vec<csv::StringRecord> =
                reader.records().collect::<Result<_, _>>().expect("whole rows");
            assert_eq!(rows.len() as u64, *count);
            assert!(rows.iter().all(|row| row == vec!["a", "two\r\nlines"]), "{piece}");
        }
        let json: String = (0..1_001).map(|n| format!("{{\"code\":\"c{n}\"}}\n")).collect();
        let array = format!("  [{}]", json.trim_end().replace('\n', ","));
        for rows in [Rows::of_json(json.as_bytes()), Rows::of_json(array.as_bytes())] {
            let pieces = told(rows);
            assert_eq!(
                (pieces.len(), pieces[0].1, &pieces[1]),
                (2, 1_000, &("{\"code\":\"c1000\"}".to_owned(), 1))
            );
        }
    }

    /// The most memory that this process has ever used, in bytes.
    fn peak() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim_end_matches("kB").trim().parse::<usize>().expect("a number") << 10
    }

    #[test]
    fn the_rows_of_a_file_take_little_more_memory_than_the_file() {
        let nested = format!("{{\"tags\":[{}[0]]}}", "[0],".repeat(2 << 20));
        for (file, count) in [
            ("{\"\":0}\n".repeat(1 << 20), 1 << 20),
            (format!("[{}{{}}]", "{\"\":0},".repeat(1 << 20)), (1 << 20) + 1),
            (nested, 1),
        ] {
            let before = peak();
            let rows = Rows::of_json(file.as_bytes()).expect("rows");
            let taken = peak().saturating_sub(before);
            assert!(taken < 64 << 20, "{taken} bytes for {:.20}", file);
            assert_eq!(rows.count(), count);
            let sent: usize = rows.pieces.iter().map(|(piece, _)| piece.len()).sum();
            // Brackets and what stands between pieces are left out.
            assert!(sent + rows.pieces.len() + 1 >= file.len(), "{sent} bytes are sent");
        }
    }

    #[test]
    fn what_has_no_rows_is_sent_as_it_is_or_refused() {
        assert_eq!(told(Rows::of_csv(b"target")), [("target".to_owned(), 0)]);
        assert_eq!(told(Rows::of_csv(b"")), [(String::new(), 0)]);
        assert_eq!(told(Rows::of_json(b"")), []);
        for text in ["{", "[{}", "[1,]", "{}x"] {
            assert!(Rows::of_json(text.as_bytes()).is_err(), "{text}");
        }
        // The header line would be repeated before each of a thousand pieces.
        let long = "n".repeat(4 << 20) + "\n" + &"a\n".repeat(1_000_000);
        assert!(Rows::of_csv(long.as_bytes()).is_err());
    }
}
