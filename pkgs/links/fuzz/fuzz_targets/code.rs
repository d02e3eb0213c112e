//! Codes: a code that can be created can also be requested.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::code::{CodePolicy, is_well_formed};

fuzz_target!(|text: &str| {
    let policy = CodePolicy::default();
    if policy.validate(text).is_ok() {
        assert!(is_well_formed(text), "{text:?}");
        assert!(policy.validate(&text.to_ascii_uppercase()).is_ok(), "reserved whatever the case: {text:?}");
    }
});
