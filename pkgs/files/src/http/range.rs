//! The requested ranges of a file (RFC 9110, section 14).

use std::ops::Range;

/// The most ranges of one answer. Document readers request a few. With more, an answer would be mostly heads, so the
/// whole file is sent.
const MAX_PARTS: usize = 64;

/// The meaning of a `Range` field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// The whole file: no byte ranges, or almost everything.
    Whole,
    /// These bytes.
    One(Range<u64>),
    /// These bytes, ascending and not adjacent.
    Many(Vec<Range<u64>>),
    /// Nothing that the file contains.
    Unsatisfiable,
}

/// Reads a `Range` field about a file of `size` bytes.
///
/// Adjacent and overlapping ranges are merged. An unknown unit means the whole file, according to RFC 9110, section
/// 14.2; malformed ranges are unsatisfiable, as in nginx.
pub fn parse(value: &[u8], size: u64) -> RequestedRange {
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, set)) = value.split_at_checked(UNIT.len()) else { return RequestedRange::Whole };
    if !unit.eq_ignore_ascii_case(UNIT) || set.is_empty() {
        return RequestedRange::Whole;
    }
    let mut ranges = Vec::new();
    let mut specs = 0;
    for spec in set.split(|byte| *byte == b',') {
        specs += 1;
        if specs > MAX_PARTS {
            return RequestedRange::Whole;
        }
        let spec = spec.trim_ascii();
        if spec.is_empty() && set.len() > 1 {
            // Empty elements of a list are to be ignored (RFC 9110, section 5.6.1.2).
            continue;
        }
        match one(spec, size) {
            Err(Malformed) => return RequestedRange::Unsatisfiable,
            // In an empty file, a suffix means the whole file (RFC 9110, section 14.1.2), and so does a range from the
            // start, as in nginx. But `Content-Range` cannot express an empty range.
            Ok(range) if size == 0 && !starts_beyond(spec) && range.is_empty() => {
                return RequestedRange::Whole;
            }
            Ok(range) if range.is_empty() => {}
            Ok(range) => ranges.push(range),
        }
    }
    let ranges = coalesce(ranges);
    match &*ranges {
        [] => RequestedRange::Unsatisfiable,
        [range] => RequestedRange::One(range.clone()),
        _ => RequestedRange::Many(ranges),
    }
}

struct Malformed;

/// An element of a set: `first-`, `first-last` or `-suffix`. Empty if the file has none of it.
fn one(spec: &[u8], size: u64) -> Result<Range<u64>, Malformed> {
    let at = spec.iter().position(|byte| *byte == b'-').ok_or(Malformed)?;
    let (first, last) = (&spec[..at], &spec[at + 1..]);
    match (first, last) {
        (b"", last) => Ok(size - number(last)?.min(size)..size),
        (first, b"") => Ok(number(first)?.min(size)..size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            Ok(first..last.saturating_add(1).min(size))
        }
    }
}

/// Whether a range starts after the first byte.
fn starts_beyond(spec: &[u8]) -> bool {
    let first = spec.split(|byte| *byte == b'-').next().unwrap_or_default();
    first.iter().any(|digit| *digit != b'0')
}

/// A number of any length. One that does not fit exceeds every file.
fn number(digits: &[u8]) -> Result<u64, Malformed> {
    if digits.is_empty() {
        return Err(Malformed);
    }
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'9' => Ok(value.saturating_mul(10).saturating_add(u64::from(digit - b'0'))),
        _ => Err(Malformed),
    })
}

fn coalesce(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_has_them() {
        use RequestedRange::{Many, One, Unsatisfiable, Whole};
        for (value, size, wanted) in [
            ("bytes=0-0", 10, One(0..1)),
            ("bytes=0-", 10, One(0..10)),
            ("BYTES=2-4", 10, One(2..5)),
            ("bytes=2-99", 10, One(2..10)),
            ("bytes=-3", 10, One(7..10)),
            ("bytes=-99", 10, One(0..10)),
            ("bytes= 2-4 ", 10, One(2..5)),
            ("bytes=0-1,2-3", 10, One(0..4)),
            ("bytes=4-5,0-1", 10, Many(vec![0..2, 4..6])),
            ("bytes=0-5,3-7,9-", 10, Many(vec![0..8, 9..10])),
            ("bytes=0-1,,4-5", 10, Many(vec![0..2, 4..6])),
            ("bytes=0-1,20-", 10, One(0..2)),
            ("bytes=0-18446744073709551615", 10, One(0..10)),
            ("bytes=0-99999999999999999999999", 10, One(0..10)),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=5-2", 10, Unsatisfiable),
            ("bytes=0-", 0, Whole),
            ("bytes=-1", 0, Whole),
            ("bytes=4-7", 0, Unsatisfiable),
            ("bytes=x", 0, Unsatisfiable),
            ("bytes=x", 10, Unsatisfiable),
            ("bytes=1", 10, Unsatisfiable),
            ("bytes=-", 10, Unsatisfiable),
            ("bytes=1-2x", 10, Unsatisfiable),
            ("bytes=--1", 10, Unsatisfiable),
            ("bytes=+1-2", 10, Unsatisfiable),
            ("bytes=0-1,x", 10, Unsatisfiable),
            ("bytes=", 10, Whole),
            ("lines=0-1", 10, Whole),
            ("bytes", 10, Whole),
            ("", 10, Whole),
        ] {
            assert_eq!(parse(value.as_bytes(), size), wanted, "{value} of {size}");
        }
    }

    #[test]
    fn very_many_parts_are_the_whole() {
        let value = |parts| {
            format!(
                "bytes={}",
                (0..parts).map(|n| format!("{}-{}", 4 * n, 4 * n)).collect::<Vec<_>>().join(",")
            )
        };
        assert!(
            matches!(parse(value(MAX_PARTS).as_bytes(), 9999), RequestedRange::Many(parts) if parts.len() == MAX_PARTS)
        );
        assert_eq!(parse(value(MAX_PARTS + 1).as_bytes(), 9999), RequestedRange::Whole);
    }

    proptest! {
        #[test]
        fn parts_cover_what_was_asked_for_and_nothing_else(
            size in 0_u64..200,
            specs in prop::collection::vec((0_u64..220, 0_u64..220, 0_u8..3), 1..8),
        ) {
            let text: Vec<String> = specs.iter().map(|(a, b, kind)| match kind {
                0 => format!("{a}-{b}"),
                1 => format!("{a}-"),
                _ => format!("-{a}"),
            }).collect();
            let asked = |byte: u64| specs.iter().any(|(a, b, kind)| match kind {
                0 => (*a..=*b).contains(&byte),
                1 => byte >= *a,
                _ => byte + a >= size,
            });
            let parts = match parse(format!("bytes={}", text.join(",")).as_bytes(), size) {
                RequestedRange::Whole => {
                    prop_assert_eq!(size, 0);
                    return Ok(());
                }
                RequestedRange::One(range) => vec![range],
                RequestedRange::Many(ranges) => ranges,
                RequestedRange::Unsatisfiable => Vec::new(),
            };
            for byte in 0..size {
                prop_assert_eq!(parts.iter().any(|part| part.contains(&byte)), asked(byte));
            }
            prop_assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert!(parts.iter().all(|part| !part.is_empty() && part.end <= size));
        }
    }
}
