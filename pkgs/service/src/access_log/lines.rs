//! The lines of workers: which requests are logged or traced, and how a worker gathers lines before it hands them on.

use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::collector::Collector;
use super::line::{self, ConnectionInfo, RequestContext, RequestSummary};
use super::options::AccessLogArgs;
use super::sink::{BLOCK_BYTES, Loss, OpenError, Sink};
use super::span::Span;
use crate::metrics::{Family, Registry};
use crate::request_id::RequestId;
use crate::traceparent::TraceParent;

/// The destination of all workers' lines and spans. Clones share it.
#[derive(Clone, Debug)]
pub struct AccessLog {
    log: Option<Channel>,
    traces: Option<Channel>,
}

/// The destination of lines or of spans, and the share of requests that go there.
#[derive(Clone, Debug)]
struct Channel {
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
    lines: Vec<u8>,
    spans: Vec<u8>,
    requests: u64,
    /// Requests whose callers do not say whether they are traced.
    undecided: u64,
}

/// What one request gets: a line, a span, both or neither.
#[derive(Clone, Copy, Debug)]
struct Turn {
    line: bool,
    span: bool,
}

impl AccessLog {
    /// Opens the log that these arguments request, for a service of this short name. None if they request none.
    ///
    /// # Errors
    /// When the file cannot be written, or no thread can be started.
    pub fn open(args: &AccessLogArgs, service: &str) -> Result<Option<Self>, OpenError> {
        let log = match &args.access_log {
            Some(to) => Some(Sink::open(to, &format!("{service}-log"), Loss::Accepted)?),
            None => None,
        };
        let traces = match &args.traces.otlp {
            Some(url) => {
                let collector = Collector::new(url, service);
                Some(Sink::begin(collector, &format!("{service}-traces"), Loss::Accepted)?)
            }
            None => None,
        };
        let channel = |sink: Option<Sink>, every| sink.map(|sink| Channel { sink, every });
        let log = Self {
            log: channel(log, args.access_log_sample),
            traces: channel(traces, args.traces.otlp_sample),
        };
        Ok((log.log.is_some() || log.traces.is_some()).then_some(log))
    }

    fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.log.iter().chain(&self.traces)
    }

    /// Reopens the file before the next write, for when it was renamed.
    pub fn reopen(&self) {
        self.channels().for_each(|channel| channel.sink.reopen());
    }

    /// Returns the lines of one more worker.
    #[must_use]
    pub fn lines(&self) -> Lines {
        Lines(Arc::new(Worker { log: self.clone(), gathered: Mutex::default() }))
    }

    /// Waits until everything handed on is written, but not for a disk or a collector that takes nothing.
    pub fn finish(&self) {
        self.channels().for_each(|channel| channel.sink.finish());
    }

    /// Registers two counters in `registry`, by these names: dropped lines, and dropped spans.
    pub fn register(&self, registry: &mut Registry, [lines, spans]: [&'static str; 2]) {
        for (name, help, channel) in [
            (lines, "Lines of the access log that the disk did not keep up with, or did not take", &self.log),
            (spans, "Spans that the collector did not keep up with, or did not take", &self.traces),
        ] {
            let Some(channel) = channel else { continue };
            Family::new(name, help).with(&[], channel.sink.lost()).register(registry);
        }
    }
}

impl Lines {
    /// Begins the line and the span of a request that was just read, if it is this request's turn to have either. `id`
    /// gives its id.
    pub fn begin(
        &self,
        summary: &RequestSummary<'_>,
        connection: impl FnOnce() -> ConnectionInfo,
        id: impl FnOnce() -> RequestId,
    ) -> Option<LogEntry> {
        let caller = || summary.trace.and_then(TraceParent::parse);
        // The caller decides whether its request is traced.
        let told = self.0.log.traces.as_ref().and_then(|_| caller());
        let turn = self.turn(told.as_ref());
        if !turn.line && !turn.span {
            return None;
        }
        let (now, connection, id, caller) = (SystemTime::now(), connection(), id(), told.or_else(caller));
        let span = turn.span.then(|| Span::begin(now, summary, &connection, &id, caller.as_ref()));
        let trace = span.as_ref().map(|span| span.here().clone()).or(caller);
        let context = RequestContext::new(id, trace);
        let line = turn.line.then(|| line::begin(now, summary, connection, &context));
        Some(LogEntry {
            lines: self.clone(),
            line,
            span,
            since: Instant::now(),
            status: None,
            bytes: 0,
            context,
        })
    }

    /// Decides what the next request gets; its caller may say whether it is traced.
    fn turn(&self, told: Option<&TraceParent>) -> Turn {
        let AccessLog { log, traces } = &self.0.log;
        let mut gathered = self.gathered();
        gathered.requests += 1;
        let line = log.as_ref().is_some_and(|log| gathered.requests.is_multiple_of(log.every.get()));
        let span = traces.as_ref().is_some_and(|traces| match told {
            Some(told) => told.is_sampled(),
            None => {
                gathered.undecided += 1;
                gathered.undecided.is_multiple_of(traces.every.get())
            }
        });
        Turn { line, span }
    }

    /// Hands the lines and the spans on.
    pub fn flush(&self) {
        let (lines, spans) = {
            let mut gathered = self.gathered();
            (std::mem::take(&mut gathered.lines), std::mem::take(&mut gathered.spans))
        };
        hand_on(self.0.log.log.as_ref(), lines);
        hand_on(self.0.log.traces.as_ref(), spans);
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.0.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8], span: &[u8]) {
        let mut gathered = self.gathered();
        gathered.lines.extend_from_slice(line);
        gathered.spans.extend_from_slice(span);
        if gathered.lines.len().max(gathered.spans.len()) >= BLOCK_BYTES {
            drop(gathered);
            self.flush();
        }
    }
}

/// Hands lines on to their destination.
fn hand_on(channel: Option<&Channel>, lines: Vec<u8>) {
    if let Some(Channel { sink, .. }) = channel.filter(|_| !lines.is_empty())
        && let Err(lines) = sink.offer(lines)
    {
        sink.lose(&lines);
    }
}

impl Drop for Worker {
    /// When a worker's thread ends, it hands on the lines that it has gathered.
    fn drop(&mut self) {
        let gathered = self.gathered.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (lines, spans) = (std::mem::take(&mut gathered.lines), std::mem::take(&mut gathered.spans));
        hand_on(self.log.log.as_ref(), lines);
        hand_on(self.log.traces.as_ref(), spans);
    }
}

/// The line and the span of a request that is being answered. They are logged when this is dropped, however the request
/// ends.
#[derive(Debug)]
pub struct LogEntry {
    lines: Lines,
    line: Option<Vec<u8>>,
    span: Option<Span>,
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

    /// Sets when the request was read, if that was before this entry was made.
    pub fn set_since(&mut self, since: Instant) {
        self.since = since;
    }

    /// Records that an answer with this status starts.
    pub fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Records that this many more bytes of its body were sent.
    pub fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        let mut line = self.line.take().unwrap_or_default();
        if !line.is_empty() {
            line::finish(&mut line, self.status, self.bytes, took.as_secs_f64(), self.context.key());
        }
        let span = self.span.take().map(|span| span.finish(self.status, self.bytes, took));
        self.lines.add(&line, &span.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::super::options::TraceArgs;
    use super::super::sink::tests::until;
    use super::*;

    const CONNECTION: ConnectionInfo = ConnectionInfo { client: None, http: "1.1", tls: None };

    fn log(path: &std::path::Path, every: u64) -> AccessLog {
        let args = AccessLogArgs {
            access_log: Some(path.display().to_string().parse().expect("a destination")),
            access_log_sample: NonZero::new(every).expect("more than none"),
            traces: TraceArgs { otlp: None, otlp_sample: NonZero::<u64>::MIN },
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
        until(|| std::fs::read_to_string(&path).is_ok_and(|text| text.lines().count() >= 4));
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
        until(|| std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        let line: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).expect("a log")).expect("one line of JSON");
        assert_eq!((&line["path"], &line["status"]), (&"/gone".into(), &serde_json::Value::Null));
    }

    /// Reads the body of the connection's next request, and answers it with `answer`.
    fn take(connection: &mut BufReader<TcpStream>, answer: &str) -> serde_json::Value {
        let (mut line, mut length) = (String::new(), 0);
        while connection.read_line(&mut line).expect("a head") > 2 {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            line.clear();
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).expect("a body");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        let answer = format!("{head}Content-Length: {}\r\n\r\n{answer}", answer.len());
        connection.get_mut().write_all(answer.as_bytes()).expect("it is read");
        serde_json::from_slice(&body).expect("JSON")
    }

    #[test]
    fn callers_say_what_is_traced_and_of_other_requests_it_is_one_in_so_many() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let args = AccessLogArgs {
            access_log: None,
            access_log_sample: NonZero::<u64>::MIN,
            traces: TraceArgs {
                otlp: Some(format!("http://{address}").parse().expect("a URL")),
                otlp_sample: NonZero::new(3).expect("more than none"),
            },
        };
        let log = AccessLog::open(&args, "test").expect("it opens").expect("it is asked for");
        let lines = log.lines();
        let ask = |trace: Option<&'static [u8]>| {
            let summary = RequestSummary { method: Some(b"GET"), trace, ..RequestSummary::default() };
            let entry = lines.begin(&summary, || CONNECTION, RequestId::generate);
            entry.map(|mut entry| {
                entry.answered(200);
                entry.context().trace().expect("a trace").clone()
            })
        };
        let recorded = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let ignored = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let traces: Vec<_> = [None, Some(&recorded[..]), Some(ignored), None, None, None]
            .into_iter()
            .filter_map(ask)
            .collect();
        assert_eq!(traces.len(), 2, "{traces:?}");
        lines.flush();
        let (connection, _) = listener.accept().expect("a connection");
        let mut connection = BufReader::new(connection);
        let body = take(&mut connection, r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}"#);
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("an array");
        let ids: Vec<_> = spans.iter().map(|span| (&span["traceId"], &span["spanId"])).collect();
        // The request's answer, statements and errors name the span itself.
        for (trace, (trace_id, span_id)) in traces.iter().zip(ids) {
            assert_eq!((trace_id, span_id), (&trace.trace_id().into(), &trace.span_id().into()));
        }
        assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
        let lost = log.traces.as_ref().expect("they are asked for").sink.lost();
        log.finish();
        until(|| lost() == 1);
        // Nothing waits for a collector that is gone.
        drop((connection, listener));
        assert!(ask(Some(recorded)).is_some());
        lines.flush();
        log.finish();
        until(|| lost() == 2);
    }
}
