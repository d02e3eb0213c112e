//! Connection strings: what is shown of one contains nothing secret, and what isn't accepted isn't shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postgres::{Conninfo, InvalidConninfo};

fuzz_target!(|text: &str| {
    let Ok(conninfo) = text.parse::<Conninfo>() else { return };
    let shown = conninfo.to_string();
    assert_eq!(format!("{conninfo:?}"), shown);
    // Neither a user nor a password, nor parameters, which may contain another password.
    assert!(shown.starts_with("postgres://") && !shown.contains(['@', '?', '#']), "{shown}");
    let again: Result<Conninfo, InvalidConninfo> = shown.parse();
    assert_eq!(again.map(|again| again.to_string()), Ok(shown));
});
