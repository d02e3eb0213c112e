//! Connection strings: the shown form of an accepted string contains nothing secret. A refused string is not shown at
//! all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postgres::{Conninfo, InvalidConninfo};

fuzz_target!(|text: &str| {
    let Ok(conninfo) = text.parse::<Conninfo>() else { return };
    let shown = conninfo.to_string();
    assert_eq!(format!("{conninfo:?}"), shown);
    // It has neither a user nor a password, nor parameters, which may contain another password.
    assert!(shown.starts_with("postgres://") && !shown.contains(['@', '?', '#']), "{shown}");
    let again: Result<Conninfo, InvalidConninfo> = shown.parse();
    assert_eq!(again.map(|again| again.to_string()), Ok(shown));
});
