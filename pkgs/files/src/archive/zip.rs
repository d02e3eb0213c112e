//! ZIP: texts are deflated, everything else is stored. Sizes follow the data, since a stream cannot go back.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::sink::Sink;
use crate::http::media_type::{is_text, media_type};

/// Deflate's level, 1 to 9: the fastest, since an archive is compressed again for each request.
const LEVEL: i64 = 1;

/// The size from which an entry has 64-bit sizes. Deflate may enlarge incompressible data slightly.
const LARGE_BYTES: u64 = (4 << 30) - (64 << 20);

/// A ZIP that is being written.
pub struct Zip(ZipWriter<StreamWriter<Sink>>);

impl Zip {
    /// A ZIP without entries.
    pub fn new(sink: Sink) -> Self {
        Self(ZipWriter::new_stream(sink))
    }

    /// Adds a directory.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        let options = SimpleFileOptions::default().unix_permissions(0o755);
        Ok(self.0.add_directory(name, options)?)
    }

    /// Starts a file. Its bytes follow.
    pub fn begin(&mut self, name: &str, size: u64, modified: i64) -> io::Result<()> {
        let method = match is_text(&media_type(name.as_bytes(), "")) {
            true => CompressionMethod::Deflated,
            false => CompressionMethod::Stored,
        };
        let level = (method == CompressionMethod::Deflated).then_some(LEVEL);
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .compression_level(level)
            .last_modified_time(date(modified))
            .unix_permissions(0o644)
            .large_file(size >= LARGE_BYTES);
        Ok(self.0.start_file(name, options)?)
    }

    /// Writes bytes of the current file.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Writes the end of the archive.
    pub fn finish(self) -> io::Result<()> {
        self.0.finish()?;
        Ok(())
    }
}

/// A time in ZIP's format, between 1980 and 2107, in UTC.
fn date(modified: i64) -> DateTime {
    let parts = Timestamp::from_second(modified).ok().map(|time| time.to_zoned(TimeZone::UTC).datetime());
    parts
        .and_then(|at| {
            let year = u16::try_from(at.year()).ok()?;
            let [month, day, hour, minute, second] =
                [at.month(), at.day(), at.hour(), at.minute(), at.second()].map(i8::unsigned_abs);
            DateTime::from_date_and_time(year, month, day, hour, minute, second).ok()
        })
        .unwrap_or_default()
}
