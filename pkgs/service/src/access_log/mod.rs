//! What is logged of requests and of writes: a JSON object a line, of one schema in all services.
//!
//! - [`AccessLog`]: a line for each request, or for one in so many. Workers gather lines and hand them on a few times a
//!   second; a thread writes them. What the disk cannot keep up with is dropped and counted, for clients come first.
//! - [`AuditLog`]: a line for each write of an operator or a key: who, what, and digests from before and after. None is
//!   sampled, and none is dropped in silence.
//! - [`RequestSummary`], [`LogEntry`], [`RequestContext`]: a request from its first line to its last byte.
//! - [`Shown`]: bytes of clients as text that does nothing to who looks at it.
//! - `line`: the schema; `span`: the same for a collector of OpenTelemetry; `sink`: the bounded queue and the thread that
//!   writes, to a `file` or a `collector`; `options`: the command line.
//!
//! Where none of it is asked for, there is no thread and no queue, and nothing is read of a request for them.

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
pub use shown::Shown;
pub use sink::OpenError;
