//! Writes an archive.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::pread;

use super::plan::ArchivePlan;
use super::sink::Sink;
use super::tar::Tar;
use super::zip::Zip;
use crate::site::Site;
use crate::site::root::{FileIdentity, LookupMode};
use crate::site::rules::archive::ArchiveFormat;
use crate::stream::source::{BlockSource, Error, NameMemory, SCARCE_FOR, Step, chunk};
use crate::threads::health;

/// A block is handed on once it has this many bytes.
const BLOCK_BYTES: usize = 64 * 1024;

/// How many bytes are read from a file at once.
const READ_BYTES: usize = 64 * 1024;

/// The most that is read for one block: some milliseconds, so that data that compresses well does not make others wait.
const STEP_BYTES: usize = 512 * 1024;

/// Writes an archive.
pub struct ArchiveWriter {
    site: Arc<Site>,
    plan: ArchivePlan,
    /// The index of the next entry.
    next: usize,
    file: Option<Reading>,
    /// None once the archive has ended.
    encoder: Option<Encoder>,
    sink: Sink,
    /// Whether blocks are sent as chunks.
    chunked: bool,
    /// Until when it waits for a file descriptor, if there was none.
    scarce_until: Option<Instant>,
}

/// A file that is being read.
struct Reading {
    fd: OwnedFd,
    identity: FileIdentity,
    at: u64,
}

enum Encoder {
    Zip(Box<Zip>),
    Tar(Box<Tar>),
}

impl fmt::Debug for ArchiveWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveWriter").field("request", &self.plan.request).finish_non_exhaustive()
    }
}

impl ArchiveWriter {
    /// A writer at the start of its archive.
    ///
    /// # Errors
    /// If there is no memory for its encoder.
    pub fn new(site: Arc<Site>, plan: ArchivePlan, chunked: bool) -> io::Result<Self> {
        let sink = Sink::default();
        let encoder = match plan.request.format {
            ArchiveFormat::Zip => Encoder::Zip(Box::new(Zip::new(sink.clone()))),
            ArchiveFormat::TarZst => Encoder::Tar(Box::new(Tar::new(sink.clone())?)),
        };
        let encoder = Some(encoder);
        Ok(Self { site, plan, next: 0, file: None, encoder, sink, chunked, scarce_until: None })
    }

    fn write(&mut self) -> Result<Step, Error> {
        let mut read = 0;
        loop {
            health::progressed();
            let Some(encoder) = &mut self.encoder else { return Ok(Step::End) };
            if self.sink.len() >= BLOCK_BYTES {
                return Ok(Step::Block(self.block(false)));
            }
            if read >= STEP_BYTES {
                return Ok(if self.sink.len() > 0 { Step::Block(self.block(false)) } else { Step::Again });
            }
            if let Some(file) = &mut self.file {
                let bytes = file.read()?;
                read += bytes.len();
                if bytes.is_empty() {
                    self.file = None;
                    encoder.end()?;
                } else {
                    encoder.write(&bytes)?;
                }
                continue;
            }
            // Names and headers take time too.
            read += READ_BYTES / 16;
            let Some(entry) = self.plan.entries.get(self.next) else {
                if let Some(encoder) = self.encoder.take() {
                    encoder.finish()?;
                }
                return Ok(Step::Block(self.block(true)));
            };
            let name = self.plan.name_of(entry);
            match entry.identity {
                None => encoder.directory(&name)?,
                Some(identity) => {
                    let opened = self.site.root.file(&entry.path, LookupMode::MayBlock)?;
                    if !identity.has_same_bytes(&opened.identity) {
                        return Err(Error::Changed);
                    }
                    encoder.begin(&name, identity.size, identity.modified.0)?;
                    self.file = Some(Reading { fd: opened.fd, identity, at: 0 });
                }
            }
            self.next += 1;
        }
    }

    fn block(&mut self, end: bool) -> Vec<u8> {
        let block = self.sink.take();
        if self.chunked { chunk(&block, end) } else { block }
    }
}

impl Reading {
    /// The next bytes; none at the end, if the file has not changed.
    fn read(&mut self) -> Result<Vec<u8>, Error> {
        let left = self.identity.size - self.at;
        if left == 0 {
            let (now, _) = FileIdentity::of(&self.fd)?;
            return if self.identity.has_same_bytes(&now) { Ok(Vec::new()) } else { Err(Error::Changed) };
        }
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES)];
        let count = pread(&self.fd, &mut bytes[..], self.at)?;
        if count == 0 {
            return Err(Error::Changed);
        }
        bytes.truncate(count);
        self.at += count as u64;
        Ok(bytes)
    }
}

impl Encoder {
    fn directory(&mut self, name: &str) -> Result<(), Error> {
        told(match self {
            Self::Zip(zip) => zip.directory(name),
            Self::Tar(tar) => tar.directory(name),
        })
    }

    fn begin(&mut self, name: &str, size: u64, modified: i64) -> Result<(), Error> {
        told(match self {
            Self::Zip(zip) => zip.begin(name, size, modified),
            Self::Tar(tar) => tar.begin(name, size, modified),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        told(match self {
            Self::Zip(zip) => zip.write(bytes),
            Self::Tar(tar) => tar.write(bytes),
        })
    }

    fn end(&mut self) -> Result<(), Error> {
        told(match self {
            Self::Zip(_) => Ok(()),
            Self::Tar(tar) => tar.end(),
        })
    }

    fn finish(self) -> Result<(), Error> {
        told(match self {
            Self::Zip(zip) => zip.finish(),
            Self::Tar(tar) => tar.finish(),
        })
    }
}

/// Maps an encoder's own errors, since its output accepts everything.
fn told(result: io::Result<()>) -> Result<(), Error> {
    result.map_err(|error| {
        tracing::error!(%error, "an archive cannot be written");
        Error::Encoder
    })
}

impl BlockSource for ArchiveWriter {
    fn step(&mut self, _: &mut dyn NameMemory) -> Result<Step, Error> {
        match self.write() {
            Err(error) if error.is_scarcity() => {
                let now = Instant::now();
                let until = *self.scarce_until.get_or_insert(now + SCARCE_FOR);
                if now < until { Ok(Step::Wait) } else { Err(error) }
            }
            step => {
                self.scarce_until = None;
                step
            }
        }
    }

    fn path(&self) -> &[u8] {
        &self.plan.request.path
    }
}
