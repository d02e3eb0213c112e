//! Times in HTTP's format (RFC 9110, section 5.6.7), for any time of a file system or clock; and the date of responses
//! (section 6.6.1), written once per second and thread.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;

/// The last second of the year 9999, in seconds since 1970: a date's year has four digits.
const LAST: u64 = 253_402_300_799;

const NAME: &str = "date: ";

const EMPTY: &str = "\r\n";

struct Written {
    second: u64,
    /// `date: Sun, 06 Nov 1994 08:49:37 GMT` and CRLF, and another CRLF.
    end: Bytes,
    value: HeaderValue,
}

thread_local! {
    static WRITTEN: RefCell<Option<Written>> = const { RefCell::new(None) };
}

/// The time closest to `seconds` after 1970 that a date can express.
#[must_use]
pub fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LAST))
}

/// A time as a date, or the closest possible date.
#[must_use]
pub fn text(time: SystemTime) -> String {
    text_of(second_of(time))
}

/// A time's second since 1970; zero for earlier times.
#[must_use]
pub fn second_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn text_of(second: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(LAST)))
}

/// Calls `then` with the HTTP/1.1 line at `second` since 1970.
pub fn with_line<T>(second: u64, then: impl FnOnce(&[u8]) -> T) -> T {
    with_end(second, |end| then(&end[..end.len() - EMPTY.len()]))
}

/// The same, followed by the empty line that ends a head.
pub fn with_end<T>(second: u64, then: impl FnOnce(&[u8]) -> T) -> T {
    with(second, |written| then(&written.end))
}

/// The field's value at `second` since 1970. Shares its memory.
pub fn value(second: u64) -> HeaderValue {
    with(second, |written| written.value.clone())
}

fn with<T>(second: u64, then: impl FnOnce(&Written) -> T) -> T {
    WRITTEN.with_borrow_mut(|written| {
        let written = match written {
            Some(written) if written.second == second => written,
            _ => written.insert(write(second)),
        };
        then(written)
    })
}

fn write(second: u64) -> Written {
    let date = text_of(second);
    let end = Bytes::from(format!("{NAME}{date}\r\n{EMPTY}"));
    let value = HeaderValue::from_maybe_shared(end.slice(NAME.len()..NAME.len() + date.len()));
    Written { second, end, value: value.expect("a date is ASCII") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_seconds_is_a_date() {
        for (seconds, date) in [
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (253_402_300_800, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(text(at(seconds)), date, "{seconds}");
        }
        assert_eq!(text(UNIX_EPOCH - Duration::from_secs(1)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(UNIX_EPOCH + Duration::from_secs(i64::MAX as u64)), "Fri, 31 Dec 9999 23:59:59 GMT");
        // Even if the clock is completely wrong.
        assert_eq!(value(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn a_date_is_written_as_http_has_it() {
        for (second, date) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
        ] {
            assert_eq!(value(second), date);
            with_line(second, |line| assert_eq!(line, format!("date: {date}\r\n").as_bytes()));
            with_end(second, |end| assert_eq!(end, format!("date: {date}\r\n\r\n").as_bytes()));
        }
    }
}
