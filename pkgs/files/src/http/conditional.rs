//! Conditional requests (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use super::head::{Fields, Values};

/// A file's strong entity tag and when it was last modified, in whole seconds, if that is known.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'f> {
    /// The tag, in its quotes.
    pub etag: &'f str,
    /// As `Last-Modified` says. Without it, conditions about the time don't count (RFC 9110, sections 13.1.3 to
    /// 13.1.5).
    pub modified: Option<SystemTime>,
}

/// The result for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// It is answered.
    Proceed,
    /// 304: the client has the current version.
    NotModified,
    /// 412: the file is not what the client expects.
    Failed,
}

/// Evaluates the preconditions of a `GET` or `HEAD` in the order of RFC 9110, section 13.2.2.
pub fn evaluate(fields: &Fields<'_>, file: Validators<'_>) -> Precondition {
    if !fields.if_match.is_absent() {
        if !matches(&fields.if_match, file.etag, Comparison::Strong) {
            return Precondition::Failed;
        }
    } else if let Some(since) = fields.if_unmodified_since.and_then(date)
        && file.modified.is_some_and(|modified| modified > since)
    {
        return Precondition::Failed;
    }
    if !fields.if_none_match.is_absent() {
        if matches(&fields.if_none_match, file.etag, Comparison::Weak) {
            return Precondition::NotModified;
        }
    } else if let Some(since) = fields.if_modified_since.and_then(date)
        && file.modified.is_some_and(|modified| modified <= since)
    {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// Whether the `Range` field applies: if `If-Range` is absent, or names the current file (RFC 9110, section 13.1.5). A
/// date only counts if it is identical and the file cannot have changed twice within that second (section 8.8.2.2).
pub fn range_applies(if_range: Option<&[u8]>, file: Validators<'_>, now: SystemTime) -> bool {
    let Some(value) = if_range else { return true };
    if value.first() == Some(&b'"') {
        return value == file.etag.as_bytes();
    }
    let Some(modified) = file.modified else { return false };
    let settled = now.duration_since(modified).is_ok_and(|age| age >= Duration::from_secs(1));
    settled && date(value) == Some(modified)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags, or `*`, contains this one (RFC 9110, section 8.8.3.2).
fn matches(list: &Values<'_>, etag: &str, comparison: Comparison) -> bool {
    list.lines().any(|line| line.trim_ascii() == b"*" || holds(line, etag.as_bytes(), comparison))
}

/// A tag may contain commas, so the list is parsed quote by quote.
fn holds(mut list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    loop {
        while let [b' ' | b'\t' | b',', rest @ ..] = list {
            list = rest;
        }
        let (weak, tag) = match list.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, list),
        };
        let Some(inner) = tag.strip_prefix(b"\"") else { return false };
        let Some(end) = inner.iter().position(|byte| *byte == b'"') else { return false };
        let (tag, rest) = tag.split_at(end + 2);
        if tag == etag && !(weak && comparison == Comparison::Strong) {
            return true;
        }
        list = rest;
    }
}

/// A date in any of the three formats (RFC 9110, section 5.6.7). An invalid one counts as absent.
fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";

    fn file() -> Validators<'static> {
        Validators { etag: "\"a,b\"", modified: date(SAME) }
    }

    fn list<'b>(lines: &[&'b str]) -> Values<'b> {
        lines.iter().map(|line| line.as_bytes()).collect()
    }

    #[test]
    fn tags_are_found_in_lists() {
        for (lines, weak, strong) in [
            (&["*"][..], true, true),
            (&["\"a,b\""], true, true),
            (&["W/\"a,b\""], true, false),
            (&["\"x\", \"a,b\""], true, true),
            (&["\"x\"", "\"a,b\""], true, true),
            (&["\"x\",,W/\"a,b\" "], true, false),
            (&["\"a\""], false, false),
            (&["a,b"], false, false),
            (&["\"a,b"], false, false),
            (&[""], false, false),
        ] {
            assert_eq!(matches(&list(lines), file().etag, Comparison::Weak), weak, "{lines:?}");
            assert_eq!(matches(&list(lines), file().etag, Comparison::Strong), strong, "{lines:?}");
        }
    }

    #[test]
    fn preconditions_are_taken_in_order() {
        use Precondition::{Failed, NotModified, Proceed};
        let none = Fields::default;
        for (fields, verdict) in [
            (none(), Proceed),
            (Fields { if_match: list(&["\"x\""]), ..none() }, Failed),
            (Fields { if_match: list(&["\"a,b\""]), ..none() }, Proceed),
            (Fields { if_match: list(&["\"a,b\""]), if_unmodified_since: Some(BEFORE), ..none() }, Proceed),
            (Fields { if_unmodified_since: Some(BEFORE), ..none() }, Failed),
            (Fields { if_unmodified_since: Some(SAME), ..none() }, Proceed),
            (Fields { if_unmodified_since: Some(b"yesterday"), ..none() }, Proceed),
            (Fields { if_none_match: list(&["W/\"a,b\""]), ..none() }, NotModified),
            (Fields { if_none_match: list(&["\"x\""]), if_modified_since: Some(AFTER), ..none() }, Proceed),
            (Fields { if_match: list(&["\"x\""]), if_none_match: list(&["*"]), ..none() }, Failed),
            (Fields { if_modified_since: Some(BEFORE), ..none() }, Proceed),
            (Fields { if_modified_since: Some(SAME), ..none() }, NotModified),
            (Fields { if_modified_since: Some(b"Sunday, 06-Nov-94 08:49:37 GMT"), ..none() }, NotModified),
            (Fields { if_modified_since: Some(b"Sun Nov  6 08:49:37 1994"), ..none() }, NotModified),
            (Fields { if_modified_since: Some(b""), ..none() }, Proceed),
        ] {
            assert_eq!(evaluate(&fields, file()), verdict, "{fields:?}");
        }
    }

    #[test]
    fn a_range_applies_to_the_file_it_was_meant_for() {
        let modified = date(SAME).expect("a date");
        let later = modified + Duration::from_secs(5);
        for (if_range, now, applies) in [
            (None, later, true),
            (Some(&b"\"a,b\""[..]), later, true),
            (Some(b"\"x\""), later, false),
            (Some(b"W/\"a,b\""), later, false),
            (Some(SAME), later, true),
            (Some(SAME), modified, false),
            (Some(BEFORE), later, false),
            (Some(AFTER), later, false),
            (Some(b""), later, false),
        ] {
            assert_eq!(range_applies(if_range, file(), now), applies, "{if_range:?}");
        }
    }

    #[test]
    fn dates_are_no_conditions_for_a_file_without_one() {
        let undated = Validators { modified: None, ..file() };
        for value in [BEFORE, SAME, AFTER] {
            let since = Fields { if_modified_since: Some(value), ..Fields::default() };
            assert_eq!(evaluate(&since, undated), Precondition::Proceed, "{value:?}");
            let until = Fields { if_unmodified_since: Some(value), ..Fields::default() };
            assert_eq!(evaluate(&until, undated), Precondition::Proceed, "{value:?}");
            let later = date(AFTER).expect("a date") + Duration::from_secs(5);
            assert!(!range_applies(Some(value), undated, later), "{value:?}");
        }
    }
}
