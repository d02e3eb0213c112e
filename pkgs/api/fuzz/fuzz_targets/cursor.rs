//! Cursors: a text that is accepted as a cursor is exactly the cursor that is given out for its position.
#![no_main]

use api::http::request::cursor::{decode, encode};
use api::store::{Filter, Sort, SortBy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let filter = Filter::default();
    for by in [SortBy::CreatedAt, SortBy::UpdatedAt, SortBy::Name, SortBy::Email] {
        for descending in [false, true] {
            let sort = Sort { by, descending };
            if let Ok(position) = decode(text, &filter, sort) {
                assert_eq!(encode(&position, &filter, sort), text);
            }
        }
    }
});
