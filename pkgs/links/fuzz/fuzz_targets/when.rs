//! Instants and days: an accepted one is written in a form that reads back unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::when::{Timestamp, format_day, parse_day};

fuzz_target!(|text: &str| {
    if let Ok(instant) = Timestamp::parse(text) {
        // Spans count from now, so only the result is compared, which must read back unchanged.
        let again = Timestamp::parse(&instant.to_string()).expect("an instant is written as one is read");
        assert_eq!(again, instant, "{text:?}");
        instant.day();
    }
    if let Ok(day) = parse_day(text) {
        assert_eq!(format_day(day), text);
    }
});
