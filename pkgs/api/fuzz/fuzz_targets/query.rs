//! The query of a list: whatever arrives, it is refused with 400, or asks for a page of an allowed size.
#![no_main]

use api::http::operations::list::asked;
use api::json::object::Unknown;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for unknown in [Unknown::Refuse, Unknown::Keep] {
        match asked(text, unknown) {
            Ok((query, _)) => {
                assert!((1..=200).contains(&query.limit) && query.filter.words.len() <= 8);
                // The query is the same when it is parsed again.
                assert_eq!(asked(text, unknown).expect("it was taken before").0, query);
            }
            Err(failure) => assert_eq!(failure.problem().status, 400),
        }
    }
});
