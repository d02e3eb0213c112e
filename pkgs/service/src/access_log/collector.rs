//! Spans for a collector of OpenTelemetry: OTLP by HTTP, in JSON (opentelemetry.io/docs/specs/otlp, "OTLP/HTTP").

use std::fmt;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use ureq::Agent;

use super::options::CollectorUrl;
use super::output::Output;

/// Timeout for one block of spans.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that is read, in bytes. It says what was refused.
const ANSWER_BYTES: u64 = 64 << 10;

/// The end of each request's JSON.
const TAIL: &[u8] = b"]}]}]}";

/// A collector, and the start of every request to it.
pub(super) struct Collector {
    url: CollectorUrl,
    agent: Agent,
    head: Vec<u8>,
}

impl Collector {
    /// A collector of spans of the service of this short name.
    pub fn new(url: &CollectorUrl, service: &str) -> Self {
        // Ignore proxies in the environment: they are meant for browsing, not for a collector nearby.
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .max_redirects(0)
            .proxy(None)
            .http_status_as_error(false)
            .user_agent(concat!("linerate/", env!("CARGO_PKG_VERSION")));
        let attribute = |key: &str, value: String| json!({ "key": key, "value": { "stringValue": value } });
        let whole = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                attribute("service.name", format!("linerate-{service}")),
                attribute("service.version", env!("CARGO_PKG_VERSION").to_owned()),
                { "key": "process.pid", "value": { "intValue": std::process::id().to_string() } },
            ] },
            "scopeSpans": [{ "scope": { "name": "linerate" }, "spans": [] }],
        }] });
        let mut head = whole.to_string().into_bytes();
        head.truncate(head.len() - TAIL.len());
        Self { url: url.clone(), agent: config.build().into(), head }
    }

    /// The request's body for these spans, one per line.
    fn request(&self, lines: &[u8]) -> Vec<u8> {
        let mut body = [&self.head, lines.trim_ascii_end(), TAIL].concat();
        let spans = self.head.len()..body.len() - TAIL.len();
        body[spans].iter_mut().filter(|byte| **byte == b'\n').for_each(|end| *end = b',');
        body
    }
}

impl Output for Collector {
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()> {
        if left.is_empty() {
            return Ok(());
        }
        let request = self.agent.post(self.url.as_str()).content_type("application/json");
        let mut answer = request.send(&self.request(left)[..]).map_err(ureq::Error::into_io)?;
        if !answer.status().is_success() {
            return Err(io::Error::other(format!("the collector answers {}", answer.status().as_u16())));
        }
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
        let Answer { partial_success: PartialSuccess { rejected_spans, error_message } } =
            text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let refused = rejected_spans.count();
        // The collector does not say which spans it refused, so the last ones are counted as refused.
        *left = last(left, refused);
        match refused {
            0 => Ok(()),
            _ => Err(io::Error::other(format!("the collector refuses {refused} spans: {error_message:?}"))),
        }
    }

    fn reopen(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// The last `count` lines.
fn last(lines: &[u8], count: usize) -> &[u8] {
    let ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
    // The last start is the end of the lines.
    &lines[starts[starts.len().saturating_sub(count + 1)]..]
}

/// The collector's answer to a request that it accepted.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Answer {
    partial_success: PartialSuccess,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PartialSuccess {
    rejected_spans: Count,
    error_message: String,
}

/// A count. protobuf's JSON writes 64-bit numbers as text, but allows numbers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u32),
    Text(String),
}

impl Default for Count {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Count {
    fn count(&self) -> usize {
        match self {
            Self::Number(count) => *count as usize,
            Self::Text(text) => text.parse().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_service_and_a_span_for_each_line() {
        let collector = Collector::new(&"http://collector".parse().expect("a URL"), "links");
        let request = collector.request(b"{\"name\":\"a\"}\n{\"name\":\"b\"}\n");
        let request: serde_json::Value = serde_json::from_slice(&request).expect("JSON");
        let spans = &request["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(*spans, json!([{ "name": "a" }, { "name": "b" }]));
        let service = &request["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(*service, json!({ "key": "service.name", "value": { "stringValue": "linerate-links" } }));
    }

    #[test]
    fn the_last_lines_stand_for_what_was_refused() {
        for (count, left) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")] {
            assert_eq!(last(b"a\nb\nc\n", count), left.as_bytes(), "{count}");
        }
    }
}
