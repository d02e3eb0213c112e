//! ZIP: texts are deflated, all else is stored. Sizes follow what they are of, for nobody goes back in a stream.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::sink::Sink;
use crate::http::media_type::{is_text, media_type};

/// Of deflate, 1 to 9: the fastest, for it is compressed anew each time it is asked for.
const LEVEL: i64 = 1;

/// From which size on an entry says its sizes in 64 bits: deflate may add some bytes to what does not become smaller.
const LARGE_BYTES: u64 = (4 << 30) - (64 << 20);

/// A ZIP under way.
pub struct Zip(ZipWriter<StreamWriter<Sink>>);

impl Zip {
    /// One that has not begun.
    pub fn new(sink: Sink) -> Self {
        Self(ZipWriter::new_stream(sink))
    }

    /// Adds a directory.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        let options = SimpleFileOptions::default().unix_permissions(0o755);
        Ok(self.0.add_directory(name, options)?)
    }

    /// Begins a file, whose bytes are written next.
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

    /// Writes some bytes of that.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Writes what all of it ends with.
    pub fn finish(self) -> io::Result<()> {
        self.0.finish()?;
        Ok(())
    }
}

/// A time as ZIP has it, between 1980 and 2107, in UTC.
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
