//! A request as a span, in the JSON of OTLP, with the attributes of OpenTelemetry's conventions for HTTP servers
//! (opentelemetry.io/docs/specs/semconv/http/http-spans).

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::uri::Authority;
use serde::Serialize;

use super::line::{ConnectionInfo, RequestSummary};
use super::shown::Shown;
use crate::request_id::RequestId;
use crate::traceparent::TraceParent;

/// A server's span (`SpanKind` in opentelemetry/proto/trace/v1/trace.proto).
const SERVER: u8 = 2;

/// A span that failed (`Status.StatusCode` in the same file).
const ERROR: u8 = 2;

/// Methods that are reported unchanged. Others become `_OTHER`, so that clients cannot choose the names of spans.
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// The span of a request that is being answered.
#[derive(Debug)]
pub(super) struct Span {
    /// The JSON so far, without what the answer adds.
    json: Vec<u8>,
    start: SystemTime,
    here: TraceParent,
}

/// The fields of a span that are known before the answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'s> {
    trace_id: &'s str,
    span_id: &'s str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<&'s str>,
    name: &'s str,
    kind: u8,
    start_time_unix_nano: String,
    attributes: Vec<Attribute<'s>>,
}

#[derive(Serialize)]
struct Attribute<'s> {
    key: &'static str,
    value: Value<'s>,
}

#[derive(Serialize)]
enum Value<'s> {
    #[serde(rename = "stringValue")]
    Text(Shown<'s>),
    /// A number as text, since protobuf's JSON writes 64-bit numbers as text.
    #[serde(rename = "intValue")]
    Number(String),
}

impl Span {
    /// Begins the span of a request that was read at `start`, as a child of its caller's span if there is one.
    pub fn begin(
        start: SystemTime,
        summary: &RequestSummary<'_>,
        connection: &ConnectionInfo,
        id: &RequestId,
        caller: Option<&TraceParent>,
    ) -> Self {
        // Request ids can serve as trace and span ids: they have as many digits as a trace id and need no more secrecy.
        // Their ends differ, so the last 16 digits can be a span id.
        let (trace, span) = (RequestId::generate(), RequestId::generate());
        let trace = caller.map_or(trace.as_str(), TraceParent::trace_id);
        let here = TraceParent::recorded(trace, &span.as_str()[RequestId::LENGTH - 16..]);
        let known = summary.method.filter(|method| METHODS.contains(method));
        let client = connection.client.map(|client| client.to_string());
        let asked = summary.host.and_then(|host| Authority::try_from(host).ok());
        let port = asked.as_ref().and_then(Authority::port_u16);
        let head = Head {
            trace_id: here.trace_id(),
            span_id: here.span_id(),
            parent_span_id: caller.map(TraceParent::span_id),
            name: known.map_or("HTTP", |method| str::from_utf8(method).unwrap_or_default()),
            kind: SERVER,
            start_time_unix_nano: nanoseconds(start),
            attributes: [
                ("http.request.method", Some(known.unwrap_or(b"_OTHER"))),
                ("url.scheme", Some(if connection.tls.is_some() { &b"https"[..] } else { b"http" })),
                ("url.path", summary.path),
                ("server.address", asked.as_ref().map(|asked| asked.host().as_bytes())),
                ("client.address", client.as_deref().map(str::as_bytes)),
                ("network.protocol.name", Some(b"http")),
                ("network.protocol.version", Some(connection.http.as_bytes())),
                ("tls.protocol.version", connection.tls.map(str::as_bytes)),
                ("user_agent.original", summary.agent),
                ("http.request.header.x-request-id", Some(id.as_bytes())),
            ]
            .into_iter()
            .filter_map(|(key, value)| Some(Attribute { key, value: Value::Text(Shown(value?)) }))
            .chain(port.map(|port| Attribute { key: "server.port", value: Value::Number(port.to_string()) }))
            .collect(),
        };
        // Serialising text and numbers into a vector cannot fail.
        let mut json = serde_json::to_vec(&head).unwrap_or_default();
        // The attributes come last, and [`Span::finish`] adds more.
        json.truncate(json.len().saturating_sub(b"]}".len()));
        Self { json, start, here }
    }

    /// The `traceparent` to send to servers that the request is passed on to.
    pub fn here(&self) -> &TraceParent {
        &self.here
    }

    /// Returns the span as a line, once the request is answered or its client has left.
    pub fn finish(self, status: Option<u16>, bytes: u64, took: Duration) -> Vec<u8> {
        let Self { mut json, start, .. } = self;
        let told = status.map(|status| ("http.response.status_code", u64::from(status)));
        for (key, number) in told.into_iter().chain([("http.response.body.size", bytes)]) {
            json.push(b',');
            let attribute = Attribute { key, value: Value::Number(number.to_string()) };
            let _ = serde_json::to_writer(&mut json, &attribute);
        }
        let end = nanoseconds(start + took);
        let failed = status.is_none_or(|status| status >= 500);
        let code = if failed { ERROR } else { 0 };
        let _ = writeln!(json, r#"],"endTimeUnixNano":"{end}","status":{{"code":{code}}}}}"#);
        json
    }
}

/// Nanoseconds since 1970 as text, since protobuf's JSON writes 64-bit numbers as text.
fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const CALLER: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn span(
        summary: &RequestSummary<'_>,
        tls: Option<&'static str>,
        status: Option<u16>,
    ) -> serde_json::Value {
        let connection = ConnectionInfo { client: "192.0.2.1".parse().ok(), http: "2", tls };
        let caller = summary.trace.and_then(TraceParent::parse);
        let start = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let span = Span::begin(start, summary, &connection, &RequestId::generate(), caller.as_ref());
        let here = span.here().clone();
        let text = String::from_utf8(span.finish(status, 7, Duration::from_nanos(11))).expect("text");
        assert_eq!((text.matches('\n').count(), text.ends_with('\n')), (1, true), "{text}");
        let span: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&span["traceId"], &span["spanId"]), (&here.trace_id().into(), &here.span_id().into()));
        span
    }

    fn attributes(span: &serde_json::Value) -> HashMap<&str, &str> {
        let value = |one: &serde_json::Value| one["stringValue"].as_str().is_some();
        let all = span["attributes"].as_array().expect("an array");
        all.iter()
            .map(|one| {
                let kind = if value(&one["value"]) { "stringValue" } else { "intValue" };
                (one["key"].as_str().expect("a key"), one["value"][kind].as_str().expect("a text"))
            })
            .collect()
    }

    #[test]
    fn a_span_is_below_its_caller_and_has_what_conventions_ask_for() {
        let summary = RequestSummary {
            method: Some(b"GET"),
            host: Some(b"h:80"),
            path: Some(b"/a\"\n\xff"),
            trace: Some(CALLER),
            ..RequestSummary::default()
        };
        let span = span(&summary, Some("1.3"), Some(404));
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!((&span["name"], &span["kind"]), (&"GET".into(), &SERVER.into()));
        assert_eq!(span["startTimeUnixNano"], "1700000000123456789");
        assert_eq!(span["endTimeUnixNano"], "1700000000123456800");
        assert_eq!(span["status"]["code"], 0, "an error of the client is none of the server");
        let found = attributes(&span);
        for (key, value) in [
            ("http.request.method", "GET"),
            ("url.scheme", "https"),
            ("url.path", "/a\"\\x0a\\xff"),
            ("server.address", "h"),
            ("server.port", "80"),
            ("client.address", "192.0.2.1"),
            ("network.protocol.version", "2"),
            ("tls.protocol.version", "1.3"),
            ("http.response.status_code", "404"),
            ("http.response.body.size", "7"),
        ] {
            assert_eq!(found.get(key), Some(&value), "{key}");
        }
    }

    #[test]
    fn one_without_a_caller_begins_a_trace_and_names_no_method_of_the_clients() {
        let summary = RequestSummary { method: Some(b"BREW"), ..RequestSummary::default() };
        let [first, second] = [(), ()].map(|()| span(&summary, None, None));
        assert_ne!(first["traceId"], second["traceId"]);
        assert_eq!((&first["parentSpanId"], &first["name"]), (&serde_json::Value::Null, &"HTTP".into()));
        let found = attributes(&first);
        assert_eq!((found["http.request.method"], found["url.scheme"]), ("_OTHER", "http"));
        assert_eq!(found.get("http.response.status_code"), None);
        assert_eq!(first["status"]["code"], ERROR, "nobody was answered");
    }
}
