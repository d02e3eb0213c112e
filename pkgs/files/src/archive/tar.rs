//! tar, as GNU writes it, compressed by Zstandard.

use std::io::{self, Write};

use tar::{Builder, EntryType, Header};
use zstd::stream::write::Encoder;

use super::sink::Sink;

/// zstd's level, 1 to 22: the fastest that still compresses well. It takes about one MiB.
const LEVEL: i32 = 1;

/// The size of a tar's records.
const RECORD_BYTES: u64 = 512;

/// A tar that is being written.
pub struct Tar {
    builder: Builder<Encoder<'static, Sink>>,
    /// How many zeros complete the current file's last record, in bytes.
    padding: usize,
}

impl Tar {
    /// Starts a tar that is written to `sink`.
    pub fn new(sink: Sink) -> io::Result<Self> {
        Ok(Self { builder: Builder::new(Encoder::new(sink, LEVEL)?), padding: 0 })
    }

    /// Adds a directory.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        let mut header = header(EntryType::Directory, 0o755, 0, 0);
        self.builder.append_data(&mut header, name, io::empty())
    }

    /// Starts a file with its header. [`write`](Self::write) adds its bytes.
    pub fn begin(&mut self, name: &str, size: u64, modified: i64) -> io::Result<()> {
        let mut header = header(EntryType::Regular, 0o644, size, modified);
        // Without a body, which would have to be available: only the header, and an extra header for a long name.
        self.builder.append_data(&mut header, name, io::empty())?;
        self.padding = (size.next_multiple_of(RECORD_BYTES) - size) as usize;
        Ok(())
    }

    /// Writes bytes of the current file.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.builder.get_mut().write_all(bytes)
    }

    /// Ends the current file, whose bytes are all written.
    pub fn end(&mut self) -> io::Result<()> {
        let padding = std::mem::take(&mut self.padding);
        self.write(&[0; RECORD_BYTES as usize][..padding])
    }

    /// Writes the end of the tar.
    pub fn finish(self) -> io::Result<()> {
        self.builder.into_inner()?.finish()?;
        Ok(())
    }
}

fn header(kind: EntryType, mode: u32, size: u64, modified: i64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(u64::try_from(modified).unwrap_or(0));
    header
}
