//! The body of a request about one user: whatever arrives, the parser and the code that explains a refusal agree, other
//! parsers get the same result, and what was read is written in a form that reads back the same.
#![no_main]

use api::json::object::Unknown;
use api::json::scan;
use api::user::parse::{Refused, document, patch};
use api::user::{Document, Limits};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let text = str::from_utf8(bytes).ok();
    let well = text.is_some_and(|text| scan::check(text, &Limits::ONE).is_ok());
    match patch(bytes) {
        Ok(_) => assert!(well, "the scan refuses what was read"),
        Err(refused) => assert!(!well, "the scan knows nothing of {refused:?}"),
    }
    for unknown in [Unknown::Refuse, Unknown::Keep] {
        let limits = Limits { unknown, ..Limits::default() };
        match document(bytes, &limits) {
            Ok(read) => {
                let text = text.expect("what is no UTF-8 is refused");
                assert!(well && serde_json::from_str::<Value>(text).is_ok());
                assert_eq!(read, sonic_rs::from_str::<Document>(text).expect("it was read before"));
                let written = sonic_rs::to_vec(&read).expect("it is written");
                assert_eq!(document(&written, &limits).as_ref(), Ok(&read));
            }
            Err(Refused::Syntax(_)) => assert!(!well),
            Err(Refused::Faults(faults)) => {
                assert!(!faults.is_empty());
                for fault in faults {
                    assert!(!fault.detail.contains("out of bounds"), "nobody said what is: {fault:?}");
                }
            }
        }
    }
});
