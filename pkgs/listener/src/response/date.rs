//! The date of responses (RFC 9110, section 6.6.1), written anew once a second and thread.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;

const NAME: &str = "date: ";

const EMPTY: &str = "\r\n";

struct Written {
    second: u64,
    /// `date: Sun, 06 Nov 1994 08:49:37 GMT` and CRLF, and another one.
    end: Bytes,
    value: HeaderValue,
}

thread_local! {
    static WRITTEN: RefCell<Option<Written>> = const { RefCell::new(None) };
}

/// Gives `then` the line of HTTP/1.1 at `second` since 1970.
pub fn with_line<T>(second: u64, then: impl FnOnce(&[u8]) -> T) -> T {
    with_end(second, |end| then(&end[..end.len() - EMPTY.len()]))
}

/// The same with the empty line behind it that ends a head.
pub fn with_end<T>(second: u64, then: impl FnOnce(&[u8]) -> T) -> T {
    with(second, |written| then(&written.end))
}

/// The field's value at `second` since 1970; shares what was written.
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
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
    let end = Bytes::from(format!("{NAME}{date}\r\n{EMPTY}"));
    let value = HeaderValue::from_maybe_shared(end.slice(NAME.len()..NAME.len() + date.len()));
    Written { second, end, value: value.expect("a date is ASCII") }
}

#[cfg(test)]
mod tests {
    use super::*;

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
