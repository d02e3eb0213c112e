//! An answer with a finished head, and what follows it.

use std::ops::Range;
use std::rc::Rc;

use super::multipart::MultipartRanges;
use crate::cache::file::OpenFile;
use crate::stream::source::BlockSource;

/// An answer with a finished head.
#[derive(Debug)]
pub struct BuiltResponse {
    /// Its status.
    pub status: u16,
    /// What follows the head.
    pub payload: Payload,
    /// How many bytes of a body have already been written.
    pub written: u64,
    /// Whether the head says that the connection ends with it.
    pub closes: bool,
}

/// What follows a head.
#[derive(Debug)]
pub enum Payload {
    /// Nothing, or it has already been written.
    None,
    /// Bytes of a file.
    File {
        /// The file.
        file: Rc<OpenFile>,
        /// The range of its bytes.
        range: Range<u64>,
    },
    /// Several ranges of a file.
    Multipart(Box<MultipartRanges>),
    /// Something written at the client's pace: a listing or an archive.
    Stream(Box<dyn BlockSource>),
}

impl BuiltResponse {
    /// The length of its body, if that is known.
    pub fn length(&self) -> Option<u64> {
        match &self.payload {
            Payload::None => Some(self.written),
            Payload::File { range, .. } => Some(range.end - range.start),
            Payload::Multipart(parts) => Some(parts.length()),
            Payload::Stream(_) => None,
        }
    }
}
