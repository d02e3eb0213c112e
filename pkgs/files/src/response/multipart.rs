//! Several ranges of a file in one answer (RFC 9110, section 14.6).

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::file::OpenFile;

/// A head and the bytes of the file that follow it; the last one has none.
pub type Part = (String, Option<(Rc<OpenFile>, Range<u64>)>);

/// What is left to send of an answer in parts.
#[derive(Debug)]
pub struct MultipartRanges {
    file: Rc<OpenFile>,
    ranges: VecDeque<Range<u64>>,
    boundary: String,
    ended: bool,
}

impl MultipartRanges {
    /// The parts of a file, which are ascending, separate and not empty.
    pub fn new(file: Rc<OpenFile>, ranges: Vec<Range<u64>>) -> Self {
        // A boundary mustn't occur in the parts (RFC 2046, section 5.1.1). A file can know neither the next number nor
        // the time it was opened.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let (seconds, nanoseconds) = file.identity.modified;
        let boundary =
            format!("{number:016x}{:016x}", (seconds as u64).rotate_left(32) ^ u64::from(nanoseconds));
        Self { file, ranges: ranges.into(), boundary, ended: false }
    }

    /// The file.
    pub fn file(&self) -> Rc<OpenFile> {
        Rc::clone(&self.file)
    }

    /// The boundary between the parts.
    pub fn boundary(&self) -> &str {
        &self.boundary
    }

    /// The total length in bytes.
    pub fn length(&self) -> u64 {
        let ranges = self.ranges.iter();
        let parts: u64 = ranges.map(|range| self.head(range).len() as u64 + (range.end - range.start)).sum();
        parts + self.end().len() as u64
    }

    fn head(&self, range: &Range<u64>) -> String {
        let (boundary, size) = (&self.boundary, self.file.identity.size);
        let (first, last) = (range.start, range.end - 1);
        let kind = self.file.kind();
        format!("\r\n--{boundary}\r\n{kind}content-range: bytes {first}-{last}/{size}\r\n\r\n")
    }

    fn end(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }
}

impl Iterator for MultipartRanges {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        match self.ranges.pop_front() {
            Some(range) => Some((self.head(&range), Some((Rc::clone(&self.file), range)))),
            None if self.ended => None,
            None => {
                self.ended = true;
                Some((self.end(), None))
            }
        }
    }
}
