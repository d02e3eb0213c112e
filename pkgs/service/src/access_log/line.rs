//! The schema of the access log.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{self, HeaderMap};
use http::{Extensions, Method, Uri};
use serde::Serialize;

use super::shown::Shown;
use crate::request_id::RequestId;
use crate::traceparent::{self, TraceParent};

/// Each field of a line, in order, with its meaning.
pub const FIELDS: [(&str, &str); 16] = [
    ("kind", "`access`"),
    ("time", "when the request was read: RFC 3339 in UTC, to the millisecond"),
    (
        "id",
        "the request's id: `X-Request-Id` from a trusted proxy, or 32 digits made here. Errors show it as `request_id` and `X-Request-Id`",
    ),
    ("client", "the client's address, also behind a trusted proxy; null over a Unix socket"),
    ("method", "as received; null without a request line"),
    ("host", "the requested authority, with its port; null if the request names none"),
    ("path", "as received, without the query; null if there is none"),
    ("http", "`1.0`, `1.1`, `2` or `3`"),
    ("tls", "`1.2` or `1.3`; null without TLS"),
    ("agent", "`User-Agent`, or null"),
    ("referrer", "`Referer` without its query, or null"),
    (
        "trace",
        "the trace id of a well-formed `traceparent`, or the one made here if the request is traced, or null",
    ),
    ("status", "the response's status; null if the client left before there was one"),
    ("bytes", "the bytes of the response's body that were sent"),
    ("duration", "seconds from the request's head to the end of the response, as far as it counts as sent"),
    ("key", "the id of the API key or token, if the request has a known one, or null"),
];

/// [`FIELDS`] as a Markdown table, for manuals.
#[must_use]
pub fn markdown() -> String {
    let rows = FIELDS.iter().map(|(name, meaning)| format!("| `{name}` | {meaning} |\n"));
    format!("| field | |\n|---|---|\n{}", rows.collect::<String>())
}

/// The logged fields of a request, as the client sent them. None if the request has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSummary<'r> {
    /// The method.
    pub method: Option<&'r [u8]>,
    /// The target's authority, or `Host`.
    pub host: Option<&'r [u8]>,
    /// The path without its query.
    pub path: Option<&'r [u8]>,
    /// `User-Agent`.
    pub agent: Option<&'r [u8]>,
    /// `Referer`.
    pub referrer: Option<&'r [u8]>,
    /// `traceparent`.
    pub trace: Option<&'r [u8]>,
}

impl<'r> RequestSummary<'r> {
    /// The summary of a request with this head.
    #[must_use]
    pub fn of_head(method: &'r Method, uri: &'r Uri, fields: &'r HeaderMap) -> Self {
        let field = |name| fields.get(name).map(header::HeaderValue::as_bytes);
        let path = uri.path();
        Self {
            method: Some(method.as_str().as_bytes()),
            host: uri.authority().map(|host| host.as_str().as_bytes()).or_else(|| field(header::HOST)),
            path: Some(if path.is_empty() { &b"/"[..] } else { path.as_bytes() }),
            agent: field(header::USER_AGENT),
            referrer: field(header::REFERER),
            trace: field(traceparent::FIELD),
        }
    }

    /// As much of a summary as these bytes allow. They are the start of a request, or were refused as one.
    #[must_use]
    pub fn of_bytes(bytes: &'r [u8]) -> Self {
        let bytes = bytes.trim_ascii_start();
        let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
        let mut words = bytes[..end].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        Self { method: words.next(), path: words.next().map(without_query), ..Self::default() }
    }

    /// The summary of a request with this valid head, for this host and path.
    #[must_use]
    pub fn of_whole_head(head: &'r [u8], host: Option<&'r str>, path: &'r str) -> Self {
        let first = |name| crate::proxies::lines(head, name).next();
        Self {
            method: Self::of_bytes(head).method,
            host: host.map(str::as_bytes),
            path: Some(path.as_bytes()),
            agent: first(b"user-agent"),
            referrer: first(b"referer"),
            trace: first(b"traceparent"),
        }
    }

    /// Takes a field of the head, if it is logged.
    pub fn take(&mut self, name: &str, value: &'r [u8]) {
        let place = match name.len() {
            4 if name.eq_ignore_ascii_case("host") => &mut self.host,
            7 if name.eq_ignore_ascii_case("referer") => &mut self.referrer,
            10 if name.eq_ignore_ascii_case("user-agent") => &mut self.agent,
            11 if name.eq_ignore_ascii_case("traceparent") => &mut self.trace,
            _ => return,
        };
        place.get_or_insert(value);
    }

    /// Method and path, for messages. None if there is neither.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let path = Shown(self.path.unwrap_or_default());
        self.method.map(|method| format!("{} {path}", Shown(method)).trim_end().to_owned())
    }
}

/// The part before a query or a fragment, since those may contain tokens.
fn without_query(target: &[u8]) -> &[u8] {
    target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default()
}

/// The connection of a request, as logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The client's address; none if the kernel did not tell it.
    pub client: Option<IpAddr>,
    /// The version of HTTP: `1.0`, `1.1`, `2` or `3`.
    pub http: &'static str,
    /// The version of TLS: `1.2` or `1.3`; none without TLS.
    pub tls: Option<&'static str>,
}

/// What is known about a request, at every stage of its handling. Logged requests have it in their extensions. Clones
/// share it.
#[derive(Clone, Debug)]
pub struct RequestContext(Arc<Known>);

#[derive(Debug)]
struct Known {
    id: RequestId,
    trace: Option<TraceParent>,
    key: OnceLock<i64>,
}

/// The trace of a request with these extensions and fields, if it is recorded: its own span's if it has one here,
/// otherwise its caller's.
#[must_use]
pub fn recorded_trace(extensions: &Extensions, fields: &HeaderMap) -> Option<TraceParent> {
    let known = extensions.get::<RequestContext>().and_then(|context| context.trace().cloned());
    known.or_else(|| TraceParent::of_fields(fields)).filter(TraceParent::is_sampled)
}

impl RequestContext {
    /// A context without a key.
    #[must_use]
    pub fn new(id: RequestId, trace: Option<TraceParent>) -> Self {
        Self(Arc::new(Known { id, trace, key: OnceLock::new() }))
    }

    /// The request's id.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.0.id
    }

    /// The trace that the request is part of.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceParent> {
        self.0.trace.as_ref()
    }

    /// The id of the request's key.
    #[must_use]
    pub fn key(&self) -> Option<i64> {
        self.0.key.get().copied()
    }

    /// Sets the id of the request's key.
    pub fn set_key(&self, id: i64) {
        let _ = self.0.key.set(id);
    }
}

/// The fields of a line that are known before the answer.
#[derive(Serialize)]
struct Head<'l> {
    kind: &'static str,
    time: String,
    id: &'l str,
    client: Option<IpAddr>,
    method: Option<Shown<'l>>,
    host: Option<Shown<'l>>,
    path: Option<Shown<'l>>,
    http: &'static str,
    tls: Option<&'static str>,
    agent: Option<Shown<'l>>,
    referrer: Option<Shown<'l>>,
    trace: Option<&'l str>,
}

/// The fields that the answer gives.
#[derive(Serialize)]
struct Tail {
    status: Option<u16>,
    bytes: u64,
    duration: f64,
    key: Option<i64>,
}

/// Returns the start of a line; [`finish`] adds the rest.
pub(super) fn begin(
    now: SystemTime,
    summary: &RequestSummary<'_>,
    connection: ConnectionInfo,
    context: &RequestContext,
) -> Vec<u8> {
    let head = Head {
        kind: "access",
        time: timestamp(now),
        id: context.id().as_str(),
        client: connection.client,
        method: summary.method.map(Shown),
        host: summary.host.map(Shown),
        path: summary.path.map(Shown),
        http: connection.http,
        tls: connection.tls,
        agent: summary.agent.map(Shown),
        referrer: summary.referrer.map(without_query).map(Shown),
        trace: context.trace().map(TraceParent::trace_id),
    };
    // Serialising text and numbers into a vector cannot fail.
    let mut line = serde_json::to_vec(&head).unwrap_or_default();
    if let Some(end) = line.last_mut() {
        *end = b',';
    }
    line
}

/// Adds the rest of a line, with its line end.
pub(super) fn finish(line: &mut Vec<u8>, status: Option<u16>, bytes: u64, seconds: f64, key: Option<i64>) {
    // To the microsecond: smaller digits measure the clock rather than the request.
    let duration = (seconds * 1e6).round() / 1e6;
    let tail = serde_json::to_vec(&Tail { status, bytes, duration, key }).unwrap_or_default();
    line.extend_from_slice(tail.get(1..).unwrap_or_default());
    line.push(b'\n');
}

/// A time in RFC 3339, in UTC, to the millisecond.
pub(super) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let (second, millisecond) = (second % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// The date this many days after 1970-01-01 (Howard Hinnant, chrono-compatible low-level date algorithms). Counting
/// years from March makes a leap day the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_trace_that_is_recorded_is_that_of_the_span_here_and_else_its_callers() {
        let trace =
            |span: u8, flags: &str| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-{flags}");
        let context =
            |text: String| RequestContext::new(RequestId::generate(), TraceParent::parse(text.as_bytes()));
        for (known, caller, expected) in [
            (None, None, None),
            (None, Some(trace(1, "01")), Some(trace(1, "01"))),
            (None, Some(trace(1, "00")), None),
            (None, Some("'*/".to_owned()), None),
            (Some(trace(2, "01")), Some(trace(1, "01")), Some(trace(2, "01"))),
            (Some(trace(1, "00")), Some(trace(1, "00")), None),
            (Some(String::new()), Some(trace(1, "01")), Some(trace(1, "01"))),
        ] {
            let (mut extensions, mut fields) = (Extensions::new(), HeaderMap::new());
            known.clone().map(|known| extensions.insert(context(known)));
            caller.clone().map(|caller| fields.insert(traceparent::FIELD, caller.parse().expect("a value")));
            let found = recorded_trace(&extensions, &fields);
            assert_eq!(found.map(|trace| trace.as_str().to_owned()), expected, "{known:?} {caller:?}");
        }
    }

    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_dates_of_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_micros(1_999)), "1970-01-01T00:00:00.001Z");
    }

    #[test]
    fn a_line_has_the_fields_that_are_described_and_nothing_that_it_should_not() {
        let trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let summary = RequestSummary {
            method: Some(b"GET"),
            host: Some(b"h\"\n:80"),
            path: Some(b"/\x1b[2J\",\"status\":200}\n{"),
            agent: Some(b"a\r\nb\xff"),
            referrer: Some(b"https://r/p?token=secret#x"),
            trace: Some(trace),
        };
        let context = RequestContext::new(RequestId::generate(), TraceParent::parse(trace));
        let connection = ConnectionInfo { client: "192.0.2.1".parse().ok(), http: "2", tls: Some("1.3") };
        let mut line = begin(UNIX_EPOCH, &summary, connection, &context);
        finish(&mut line, Some(404), 7, 0.000_123_456, Some(3));
        let text = String::from_utf8(line).expect("text");
        assert_eq!((text.matches('\n').count(), text.contains("secret")), (1, false), "{text}");
        // The text's order is the one that people read; a map would not keep it.
        let at: Vec<_> = FIELDS.iter().map(|(name, _)| text.find(&format!("\"{name}\":"))).collect();
        assert!(at.is_sorted() && at[0] == Some(1), "{at:?} {text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value.as_object().expect("an object").len(), FIELDS.len());
        assert_eq!(value["path"], "/\\x1b[2J\",\"status\":200}\\x0a{");
        assert_eq!(
            (&value["referrer"], &value["agent"]),
            (&"https://r/p".into(), &"a\\x0d\\x0ab\\xff".into())
        );
        assert_eq!((&value["status"], &value["bytes"], &value["key"]), (&404.into(), &7.into(), &3.into()));
        assert_eq!(
            (&value["duration"], &value["http"], &value["tls"]),
            (&0.000_123.into(), &"2".into(), &"1.3".into())
        );
        assert_eq!(value["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
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
            assert_eq!(
                RequestSummary::of_bytes(bytes),
                RequestSummary { method, path, ..RequestSummary::default() }
            );
        }
    }

    #[test]
    fn the_page_has_the_table() {
        assert!(
            include_str!("../../README.md").contains(&markdown()),
            "README.md is to have:\n{}",
            markdown()
        );
    }
}
