//! The logs of requests and of writes: one JSON object per line, with one schema in all services.
//!
//! - [`AccessLog`]: a line for each request, or for one in N. Workers gather lines and hand them on a few times a
//!   second; a thread writes them. Lines that the disk is too slow for are dropped and counted, so that clients never
//!   wait.
//! - [`AuditLog`]: a line for each write by an operator or a key: who, what, and digests before and after. No line
//!   is sampled, and none is dropped silently.
//! - [`RequestSummary`], [`LogEntry`], [`RequestContext`]: a request from its first line to its last byte.
//! - [`Shown`]: clients' bytes as text that cannot affect a reader's terminal.
//! - `line`: the schema; `span`: the same for an OpenTelemetry collector; `sink`: the bounded queue and the thread
//!   that writes to a `file` or a `collector`; `options`: the command line.
//!
//! Without these flags there is no thread and no queue, and no request is read for them.

mod audit;
mod collector;
mod file;
mod line;
mod lines;
mod options;
mod output;
mod shown;
mod sink;
mod span;

pub use audit::{Actor, AuditLog, AuditRecord, digest};
pub use line::{ConnectionInfo, FIELDS, RequestContext, RequestSummary, markdown, recorded_trace};
pub use lines::{AccessLog, Lines, LogEntry};
pub use options::{AccessLogArgs, AuditLogArgs, CollectorUrl, Destination, TraceArgs};
pub use shown::{Shown, misleads};
pub use sink::OpenError;
