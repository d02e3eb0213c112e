//! The lines of workers: whose turn it is to have one, and what is gathered before it is handed on.

use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::line::{self, ConnectionInfo, RequestContext, RequestSummary};
use super::options::AccessLogArgs;
use super::sink::{BLOCK_BYTES, Loss, OpenError, Sink};
use crate::metrics::{Family, Registry};
use crate::request_id::RequestId;
use crate::traceparent::TraceParent;

/// Where the lines of all workers go. Clones share.
#[derive(Clone, Debug)]
pub struct AccessLog {
    sink: Sink,
    every: NonZero<u64>,
}

/// The lines of one worker. Clones share.
#[derive(Clone, Debug)]
pub struct Lines(Arc<Worker>);

#[derive(Debug)]
struct Worker {
    log: AccessLog,
    gathered: Mutex<Gathered>,
}

#[derive(Debug, Default)]
struct Gathered {
    block: Vec<u8>,
    requests: u64,
}

impl AccessLog {
    /// The log that these arguments ask for, of a service of this short name; none where they ask for none.
    ///
    /// # Errors
    /// When the file cannot be written, or there are no more threads.
    pub fn open(args: &AccessLogArgs, service: &str) -> Result<Option<Self>, OpenError> {
        let Some(to) = &args.access_log else { return Ok(None) };
        let sink = Sink::open(to, &format!("{service}-log"), Loss::Accepted)?;
        Ok(Some(Self { sink, every: args.access_log_sample }))
    }

    /// Opens the file anew before the next write, so that it can have been renamed.
    pub fn reopen(&self) {
        self.sink.reopen();
    }

    /// The lines of one more worker.
    #[must_use]
    pub fn lines(&self) -> Lines {
        Lines(Arc::new(Worker { log: self.clone(), gathered: Mutex::default() }))
    }

    /// Waits until what was handed on is written, but not for a disk that takes none of it.
    pub fn finish(&self) {
        self.sink.finish();
    }

    /// Shows in `registry`, by this name, how many lines were dropped.
    pub fn register(&self, registry: &mut Registry, name: &'static str) {
        Family::new(name, "Lines of the access log that the disk did not keep up with, or did not take")
            .with(&[], self.sink.lost())
            .register(registry);
    }
}

impl Lines {
    /// Begins the line of a request that was read just now, if it is this one's turn to have one. `id` tells its id.
    pub fn begin(
        &self,
        summary: &RequestSummary<'_>,
        connection: impl FnOnce() -> ConnectionInfo,
        id: impl FnOnce() -> RequestId,
    ) -> Option<LogEntry> {
        {
            let mut gathered = self.gathered();
            gathered.requests += 1;
            if !gathered.requests.is_multiple_of(self.0.log.every.get()) {
                return None;
            }
        }
        let context = RequestContext::new(id(), summary.trace.and_then(TraceParent::parse));
        let line = line::begin(SystemTime::now(), summary, connection(), &context);
        Some(LogEntry { lines: self.clone(), line, since: Instant::now(), status: None, bytes: 0, context })
    }

    /// Hands the lines on.
    pub fn flush(&self) {
        let lines = std::mem::take(&mut self.gathered().block);
        self.0.hand_on(lines);
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.0.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8]) {
        let mut gathered = self.gathered();
        gathered.block.extend_from_slice(line);
        if gathered.block.len() >= BLOCK_BYTES {
            let lines = std::mem::take(&mut gathered.block);
            drop(gathered);
            self.0.hand_on(lines);
        }
    }
}

impl Worker {
    fn hand_on(&self, lines: Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        if let Err(lines) = self.log.sink.offer(lines) {
            self.log.sink.lose(&lines);
        }
    }
}

impl Drop for Worker {
    /// A thread that ends has logged what it served.
    fn drop(&mut self) {
        let gathered = self.gathered.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut gathered.block);
        self.hand_on(lines);
    }
}

/// The line of a request that is being answered. It is logged when this is dropped, however the request ends.
#[derive(Debug)]
pub struct LogEntry {
    lines: Lines,
    line: Vec<u8>,
    since: Instant,
    status: Option<u16>,
    bytes: u64,
    context: RequestContext,
}

impl LogEntry {
    /// What is known of the request.
    #[must_use]
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// The request was read then, and not only when this was made.
    pub fn set_since(&mut self, since: Instant) {
        self.since = since;
    }

    /// An answer of this status begins.
    pub fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// So many more bytes of its body are sent.
    pub fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let (mut line, seconds) = (std::mem::take(&mut self.line), self.since.elapsed().as_secs_f64());
        line::finish(&mut line, self.status, self.bytes, seconds, self.context.key());
        self.lines.add(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTION: ConnectionInfo = ConnectionInfo { client: None, http: "1.1", tls: None };

    fn log(path: &std::path::Path, every: u64) -> AccessLog {
        let args = AccessLogArgs {
            access_log: Some(path.display().to_string().parse().expect("a destination")),
            access_log_sample: NonZero::new(every).expect("more than none"),
        };
        AccessLog::open(&args, "test").expect("it opens").expect("it is asked for")
    }

    #[test]
    fn each_worker_logs_one_in_so_many_requests_and_makes_no_id_for_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let log = log(&path, 3);
        let mut ids = 0;
        for worker in [log.lines(), log.lines()] {
            for _ in 0..7 {
                let entry = worker.begin(
                    &RequestSummary::default(),
                    || CONNECTION,
                    || {
                        ids += 1;
                        RequestId::generate()
                    },
                );
                if let Some(mut entry) = entry {
                    entry.answered(200);
                    entry.sent(2);
                    entry.sent(3);
                }
            }
        }
        log.finish();
        let text = std::fs::read_to_string(&path).expect("a log");
        assert_eq!((text.lines().count(), ids), (4, 4), "{text}");
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &5.into()));
        }
    }

    #[test]
    fn a_request_that_comes_to_nothing_is_logged_too() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let log = log(&path, 1);
        let lines = log.lines();
        drop(lines.begin(&RequestSummary::of_bytes(b"GET /gone"), || CONNECTION, RequestId::generate));
        lines.flush();
        log.finish();
        let line: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).expect("a log")).expect("one line of JSON");
        assert_eq!((&line["path"], &line["status"]), (&"/gone".into(), &serde_json::Value::Null));
    }
}
