//! Conditions and codings on several lines: the chosen coding exists, and a matching tag is found on any line.
#![no_main]

use files::http::conditional::{Validators, Precondition, evaluate};
use files::http::date;
use files::http::encoding::{Coding, choose};
use files::http::head::Fields;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (i64, Vec<&[u8]>)| {
    let (seconds, lines) = input;
    for has in [Coding::Brotli, Coding::Zstd, Coding::Gzip] {
        let chosen = choose(&lines.iter().copied().collect(), |coding| coding == has);
        assert!(chosen.is_none_or(|chosen| chosen == has));
    }
    let file = Validators { etag: "\"a-b\"", modified: Some(date::at(seconds)) };
    let tags: Vec<&[u8]> = lines.iter().copied().chain([&b"\"a-b\""[..]]).collect();
    let fields = Fields { if_none_match: tags.iter().copied().collect(), ..Fields::default() };
    assert_eq!(evaluate(&fields, file), Precondition::NotModified);
    let text = date::text(date::at(seconds));
    let fields = Fields { if_modified_since: Some(text.as_bytes()), ..Fields::default() };
    assert_eq!(evaluate(&fields, file), Precondition::NotModified, "{text}");
});
