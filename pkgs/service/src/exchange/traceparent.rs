//! `traceparent` (W3C Trace Context, level 1): which trace a request is part of.

use http::header::{HeaderMap, HeaderName};

/// The header field's name.
pub const FIELD: HeaderName = HeaderName::from_static("traceparent");

/// The length of version 00, in bytes: version, trace id, parent id and flags, separated by `-`.
const BYTES: usize = 55;

/// A well-formed `traceparent`. It contains only hexadecimal digits and `-`, so it can be written unchanged into a log
/// or an SQL comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent(Box<str>);

impl TraceParent {
    /// Reads a field's value. Of a later version, reads what version 00 defines (section 3.2.2). None if it is
    /// malformed; then a new trace starts.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(BYTES)?;
        let text = std::str::from_utf8(known).ok()?;
        let (version, ids) = text.split_once('-')?;
        let parts: Vec<&str> = ids.split('-').collect();
        let [trace, parent, flags] = parts[..] else { return None };
        let hexadecimal = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let sized = (version.len(), trace.len(), parent.len(), flags.len()) == (2, 32, 16, 2);
        let whole = rest.is_empty() || (version != "00" && rest[0] == b'-');
        let named = |id: &str| id.bytes().any(|byte| byte != b'0');
        let valid = sized
            && whole
            && version != "ff"
            && [version, trace, parent, flags].into_iter().all(hexadecimal)
            && named(trace)
            && named(parent);
        valid.then(|| Self(format!("00-{ids}").into()))
    }

    /// The `traceparent` in these fields. None if there are several.
    #[must_use]
    pub fn of_fields(fields: &HeaderMap) -> Option<Self> {
        let mut lines = fields.get_all(FIELD).iter();
        let first = lines.next().filter(|_| lines.next().is_none())?;
        Self::parse(first.as_bytes())
    }

    /// A recorded span with this id in the trace with this id. The ids are 16 and 32 hexadecimal digits, not all zero.
    pub(crate) fn recorded(trace: &str, span: &str) -> Self {
        Self(format!("00-{trace}-{span}-01").into())
    }

    /// The text as version 00 writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trace's id: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }

    /// The id of the span that it names: 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.0[36..52]
    }

    /// Whether the caller records the trace (section 3.2.2.5.1).
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.0[53..], 16).is_ok_and(|flags| flags & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_well_formed_is_known() {
        let trace = TraceParent::parse(EXAMPLE.as_bytes()).expect("the example of the recommendation");
        assert_eq!((trace.as_str(), trace.is_sampled()), (EXAMPLE, true));
        assert_eq!(
            (trace.trace_id(), trace.span_id()),
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
        );
        assert_eq!(TraceParent::recorded(trace.trace_id(), trace.span_id()), trace);
        for (text, sampled) in [
            (EXAMPLE.replace("-01", "-00"), Some(false)),
            (EXAMPLE.replace("-01", "-ff"), Some(true)),
            (EXAMPLE.replacen("00", "cc", 1), Some(true)),
            (format!("{}-what-the-future-will-be-like", EXAMPLE.replacen("00", "cc", 1)), Some(true)),
            (format!("{EXAMPLE}-more"), None),
            (format!("{}.more", EXAMPLE.replacen("00", "cc", 1)), None),
            (EXAMPLE.replacen("00", "ff", 1), None),
            (EXAMPLE.to_uppercase(), None),
            (EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)), None),
            (EXAMPLE.replace("00f067aa0ba902b7", &"0".repeat(16)), None),
            (EXAMPLE.replace('4', "'"), None),
            (EXAMPLE.replace('-', "_"), None),
            (EXAMPLE[1..].to_owned(), None),
            (String::new(), None),
        ] {
            let parsed = TraceParent::parse(text.as_bytes());
            assert_eq!(parsed.map(|trace| trace.is_sampled()), sampled, "{text}");
        }
    }
}
