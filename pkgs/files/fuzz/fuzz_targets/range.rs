//! Ranges, conditions and codings: whatever arrives, the parts are in the file, ascending, and don't overlap.
#![no_main]

use files::http::conditional::{Validators, evaluate, range_applies};
use files::http::encoding::{Coding, choose};
use files::http::head::Fields;
use files::http::range::{RequestedRange, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &[u8])| {
    let (size, value) = input;
    match parse(value, size) {
        RequestedRange::Whole | RequestedRange::Unsatisfiable => {}
        RequestedRange::One(range) => assert!(range.start < range.end && range.end <= size),
        RequestedRange::Many(ranges) => {
            assert!(ranges.len() > 1);
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
    let file = Validators { etag: "\"a-b\"", modified: Some(std::time::UNIX_EPOCH) };
    let list = || [value].into_iter().collect();
    let _ = evaluate(&Fields { if_match: list(), if_none_match: list(), ..Fields::default() }, file);
    let _ = evaluate(&Fields { if_modified_since: Some(value), if_unmodified_since: Some(value), ..Fields::default() }, file);
    let _ = range_applies(Some(value), file, std::time::UNIX_EPOCH);
    let _ = choose(&list(), |coding| coding != Coding::Zstd);
});
