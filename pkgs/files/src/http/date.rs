//! Times as HTTP writes them (RFC 9110, section 5.6.7), whatever a file system or a clock says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second a date can name, of the year 9999, in seconds since 1970: a year has four digits.
const LAST: u64 = 253_402_300_799;

/// The time a date can name that is closest to `seconds` after 1970.
pub fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LAST))
}

/// A time as a date, or the closest that a date can name.
pub fn text(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST)))
}

/// `Last-Modified` of a file that changed `seconds` after 1970, in an answer of `now`. A time in the future becomes
/// `now` (RFC 9110, section 8.8.2.1: it must not be later than `Date`).
pub fn last_modified(seconds: i64, now: SystemTime) -> SystemTime {
    at(seconds).min(now)
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
    }

    #[test]
    fn nothing_was_modified_in_the_future() {
        let now = at(1000);
        for (seconds, modified) in [(-5, 0), (0, 0), (999, 999), (1000, 1000), (1001, 1000), (i64::MAX, 1000)]
        {
            assert_eq!(last_modified(seconds, now), at(modified), "{seconds}");
        }
    }
}
