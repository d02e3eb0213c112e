//! The date of responses, which over TCP hyper adds.

use std::cell::RefCell;
use std::time::SystemTime;

use http::HeaderValue;

thread_local! {
    /// The last second there was a response in, and how it is written.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// Now, as `Date` has it (RFC 9110, section 6.6.1), written once a second.
pub(super) fn now() -> HeaderValue {
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|last| match last {
        Some((written, value)) if *written == second => value.clone(),
        _ => {
            let value = HeaderValue::try_from(httpdate::fmt_http_date(now)).expect("a date of ASCII letters");
            last.insert((second, value)).1.clone()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_now() {
        let text = now();
        let read = httpdate::parse_http_date(text.to_str().expect("ASCII")).expect("a date");
        assert!(SystemTime::now().duration_since(read).expect("past").as_secs() <= 2);
        let mut same = now();
        // Unless a second has just passed, the same bytes again.
        if same != text {
            same = now();
        }
        assert_eq!(same.len(), text.len());
    }
}
