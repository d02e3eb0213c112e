//! The access log: a JSON object a line, of every request or of one in so many.
//!
//! Workers gather lines and hand them on a few times a second; a thread writes them. What the disk cannot keep
//! up with is dropped and counted, for files come first.

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
use serde::Serialize;

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

/// One line.
#[derive(Serialize)]
struct Line<'l> {
    /// Seconds since 1970.
    time: u64,
    address: Option<IpAddr>,
    /// `http1`, `http2` or `http3`.
    protocol: &'static str,
    tls: bool,
    method: &'l str,
    path: &'l str,
    status: u16,
    /// Of the body, as the head announces it.
    bytes: u64,
    agent: Option<&'l str>,
    referrer: Option<&'l str>,
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
        request: &Request<'_>,
        (status, bytes): (u16, u64),
    ) {
        self.requests += 1;
        if !self.requests.is_multiple_of(self.log.every.get()) {
            return;
        }
        let text = |value: Option<&'_ [u8]>| {
            value.and_then(|value| std::str::from_utf8(value).ok().map(str::to_owned))
        };
        let (agent, referrer) = (text(request.fields.agent), text(request.fields.referrer));
        let line = Line {
            time: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            address: client.address,
            protocol: client.protocol.label(),
            tls: client.tls,
            method: request.method.name(),
            path: request.path,
            status,
            bytes,
            agent: agent.as_deref(),
            referrer: referrer.as_deref(),
        };
        // A struct of texts and numbers is JSON, and a vector takes all that is written.
        let _ = serde_json::to_writer(&mut self.block, &line);
        self.block.push(b'\n');
        if self.block.len() >= BLOCK_BYTES {
            self.flush();
        }
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
