//! Lists of entity tags, one header per line, alternately `If-Match` and `If-None-Match`. The condition of a write has
//! to agree with what each version is judged by.
#![no_main]

use api::http::request::conditions::{Conditions, Write};
use http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut fields = HeaderMap::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate().take(64) {
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        fields.append(if index % 2 == 0 { IF_MATCH } else { IF_NONE_MATCH }, value);
    }
    let conditions = match Conditions::of(&fields) {
        Ok(conditions) => conditions,
        Err(failure) => return assert_eq!(failure.problem().status, 400),
    };
    for version in [1, 2, 3, 10, i64::MAX] {
        let allowed = conditions.allow(version);
        match conditions.write() {
            Write::Free => assert!(allowed),
            Write::At(expected) => assert_eq!(allowed, version == expected),
            Write::Depends => {}
        }
        if allowed {
            assert_eq!(conditions.unchanged(version).ok(), Some(false));
        }
    }
});
