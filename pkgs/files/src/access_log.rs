//! The access log: a JSON object a line, of every request or of one in so many.
//!
//! Workers gather lines and hand them on a few times a second; a thread writes them. What the disk cannot keep
//! up with is dropped and counted, for files come first.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::desk::Client;
use crate::http::head::Request;
use crate::metrics::WorkerMetrics;
use serde::{Serialize, Serializer};

/// Blocks of lines that wait for the disk.
const BLOCKS: usize = 64;

/// A worker hands its lines on once they take this many bytes.
const BLOCK_BYTES: usize = 32 * 1024;

/// How long the end waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the lines of all workers go.
#[derive(Clone, Debug)]
pub struct AccessLog {
    blocks: SyncSender<Block>,
    reopen: Arc<AtomicBool>,
    every: NonZero<u64>,
}

/// What the thread is given.
#[derive(Debug)]
enum Block {
    /// Lines to write.
    Lines(Vec<u8>),
    /// To be answered once all before it is written.
    End(SyncSender<()>),
}

/// The lines of one worker.
#[derive(Debug)]
pub struct Lines {
    log: AccessLog,
    metrics: Arc<WorkerMetrics>,
    block: Vec<u8>,
    requests: u64,
}

/// One line. README.md describes its fields to people.
#[derive(Serialize)]
struct Line<'l> {
    /// Seconds since 1970.
    time: u64,
    address: Option<IpAddr>,
    /// `http1`, `http2` or `http3`.
    protocol: &'static str,
    tls: bool,
    method: Option<Shown<'l>>,
    path: Option<Shown<'l>>,
    status: u16,
    /// Of the body, as the head announces it; none of a listing, which has no length beforehand.
    bytes: Option<u64>,
    agent: Option<Shown<'l>>,
    referrer: Option<Shown<'l>>,
}

/// The most bytes of a field of a line; what is longer is cut.
const FIELD_BYTES: usize = 1024;

/// What is logged of a request, as the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'r> {
    /// None where there is no request line.
    pub method: Option<&'r [u8]>,
    /// Without its query.
    pub path: Option<&'r [u8]>,
    /// `User-Agent`.
    pub agent: Option<&'r [u8]>,
    /// `Referer`.
    pub referrer: Option<&'r [u8]>,
}

impl<'r> From<&Request<'r>> for Asked<'r> {
    fn from(request: &Request<'r>) -> Self {
        Self {
            method: Some(request.name.as_bytes()),
            path: Some(request.path.as_bytes()),
            agent: request.fields.agent,
            referrer: request.fields.referrer,
        }
    }
}

impl<'r> Asked<'r> {
    /// What can be told of bytes that begin with a request, or with what was refused as one.
    pub fn of(bytes: &'r [u8]) -> Self {
        let bytes = bytes.trim_ascii_start();
        let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
        let mut words = bytes[..end].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let method = words.next();
        let path = words.next().map(|target| target.split(|byte| *byte == b'?').next().unwrap_or_default());
        Self { method, path, ..Self::default() }
    }

    /// Method and path, for messages; none where there is neither.
    pub fn line(&self) -> Option<String> {
        let path = Shown(self.path.unwrap_or_default());
        self.method.map(|method| format!("{} {path}", Shown(method)).trim_end().to_owned())
    }
}

/// Bytes of a client as text that does nothing to who looks at it: what is no UTF-8, controls and what turns the
/// direction of writing are `\xNN`, and a backslash is two. At most [`FIELD_BYTES`] are shown, with `...` behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'b>(pub &'b [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        };
        let bytes = &self.0[..self.0.len().min(FIELD_BYTES)];
        for chunk in bytes.utf8_chunks() {
            for shown in chunk.valid().split_inclusive(acts) {
                let mut all = shown.chars();
                match all.next_back().filter(|last| acts(*last)) {
                    None => f.write_str(shown)?,
                    Some(last) => {
                        f.write_str(all.as_str())?;
                        match last {
                            '\\' => f.write_str("\\\\")?,
                            last => escape(f, last.encode_utf8(&mut [0; 4]).as_bytes())?,
                        }
                    }
                }
            }
            escape(f, chunk.invalid())?;
        }
        if bytes.len() < self.0.len() { f.write_str("...") } else { Ok(()) }
    }
}

/// Whether a character does something to a terminal or a reader, or to our own escapes.
fn acts(one: char) -> bool {
    // Marks and overrides of direction, separators of lines and paragraphs (Unicode TR 9 and 36), and a byte order mark.
    one.is_control()
        || one == '\\'
        || matches!(one, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
        match std::str::from_utf8(self.0) {
            Ok(text) if self.0.len() <= FIELD_BYTES && self.0.iter().all(plain) => {
                serializer.serialize_str(text)
            }
            _ => serializer.collect_str(self),
        }
    }
}

impl AccessLog {
    /// Appends to the file at `path` from here on, one in `every` requests.
    ///
    /// # Errors
    /// When the file cannot be written, or there are no more threads.
    pub fn open(path: &Path, every: NonZero<u64>) -> io::Result<Self> {
        let file = append(path)?;
        let (blocks, queue) = mpsc::sync_channel(BLOCKS);
        let reopen = Arc::new(AtomicBool::new(false));
        let (path, asked) = (path.to_owned(), Arc::clone(&reopen));
        std::thread::Builder::new()
            .name("files-log".into())
            .spawn(move || write(&queue, file, &path, &asked))?;
        Ok(Self { blocks, reopen, every })
    }

    /// Opens the file anew before the next write, so that it can have been renamed.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// The lines of one more worker, which counts those that are dropped.
    pub fn lines(&self, metrics: Arc<WorkerMetrics>) -> Lines {
        Lines { log: self.clone(), metrics, block: Vec::new(), requests: 0 }
    }

    /// Waits until what was handed on is written, but not for a disk that takes none of it.
    pub fn finish(&self) {
        let (written, answer) = mpsc::sync_channel(1);
        let deadline = Instant::now() + PATIENCE;
        let mut end = Block::End(written);
        while let Err(TrySendError::Full(again)) = self.blocks.try_send(end) {
            if Instant::now() >= deadline {
                return;
            }
            end = again;
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Lines {
    /// Adds a line, if it is this request's turn to have one.
    pub fn add(
        &mut self,
        now: SystemTime,
        client: Client,
        asked: &Asked<'_>,
        (status, bytes): (u16, Option<u64>),
    ) {
        self.requests += 1;
        if !self.requests.is_multiple_of(self.log.every.get()) {
            return;
        }
        let line = Line {
            time: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            address: client.address,
            protocol: client.protocol.label(),
            tls: client.tls,
            method: asked.method.map(Shown),
            path: asked.path.map(Shown),
            status,
            bytes,
            agent: asked.agent.map(Shown),
            referrer: asked.referrer.map(Shown),
        };
        // A struct of texts and numbers is JSON, and a vector takes all that is written.
        let _ = serde_json::to_writer(&mut self.block, &line);
        self.block.push(b'\n');
        if self.block.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    /// Leaves out a line that a panic left half written.
    pub fn mend(&mut self) {
        let whole = memchr::memrchr(b'\n', &self.block).map_or(0, |end| end + 1);
        self.block.truncate(whole);
    }

    /// Hands the lines on.
    pub fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let lines = Block::Lines(std::mem::take(&mut self.block));
        if let Err(
            TrySendError::Full(Block::Lines(lines)) | TrySendError::Disconnected(Block::Lines(lines)),
        ) = self.log.blocks.try_send(lines)
        {
            self.metrics.log_dropped.add(memchr::memchr_iter(b'\n', &lines).count() as u64);
        }
    }
}

impl Drop for Lines {
    /// A thread that ends has logged what it served.
    fn drop(&mut self) {
        self.flush();
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn write(queue: &Receiver<Block>, mut file: File, path: &Path, reopen: &AtomicBool) {
    for block in queue {
        let lines = match block {
            Block::Lines(lines) => lines,
            Block::End(written) => {
                let _ = written.try_send(());
                continue;
            }
        };
        if reopen.swap(false, Ordering::Relaxed) {
            match append(path) {
                Ok(opened) => file = opened,
                Err(error) => {
                    tracing::error!(%error, path = %path.display(), "the access log stays where it was")
                }
            }
        }
        if let Err(error) = file.write_all(&lines) {
            tracing::error!(%error, path = %path.display(), "cannot write the access log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_shown_so_that_they_do_nothing() {
        for (bytes, shown) in [
            (&b"plain \"text\""[..], "plain \"text\""),
            ("h\u{e9} \u{1f600}".as_bytes(), "h\u{e9} \u{1f600}"),
            (b"a\\x41", "a\\\\x41"),
            (b"\x1b[2J\r\n\0\x7f", "\\x1b[2J\\x0d\\x0a\\x00\\x7f"),
            (b"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"),
            ("\u{9b}31m".as_bytes(), "\\xc2\\x9b31m"),
            ("a\u{202e}b\u{2028}".as_bytes(), "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8"),
            (b"", ""),
        ] {
            assert_eq!(Shown(bytes).to_string(), shown);
            let json = serde_json::to_string(&Shown(bytes)).expect("JSON");
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), shown);
        }
        let long = vec![b'x'; 2 * FIELD_BYTES];
        assert_eq!(Shown(&long).to_string().len(), FIELD_BYTES + 3);
    }

    #[test]
    fn what_is_refused_is_told_as_far_as_it_goes() {
        for (bytes, method, path) in [
            (&b"GET /a?b HTTP/1.1\r\nHost: h"[..], Some("GET"), Some("/a")),
            (b"\r\nGET  /a\nx y", Some("GET"), Some("/a")),
            (b"GET", Some("GET"), None),
            (b"\r\n\r\n", None, None),
            (b"", None, None),
            (b"\x16\x03\x01\x02", Some("\x16\x03\x01\x02"), None),
        ] {
            let (method, path) = (method.map(str::as_bytes), path.map(str::as_bytes));
            assert_eq!(Asked::of(bytes), Asked { method, path, ..Asked::default() });
        }
    }
}
