//! The URL of a PostgreSQL: what is shown of it holds nothing secret, and what is not taken is not shown.
#![no_main]

use api::store::postgres::{InvalidUrl, Url};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(url) = text.parse::<Url>() else { return };
    assert_eq!(url.expose(), text);
    let shown = url.to_string();
    assert_eq!(format!("{url:?}"), shown);
    // Neither a user nor a password, nor parameters, where there may be another.
    assert!(shown.starts_with("postgres://") && !shown.contains(['@', '?', '#']), "{shown}");
    let again: Result<Url, InvalidUrl> = shown.parse();
    assert_eq!(again.map(|again| again.to_string()), Ok(shown));
});
