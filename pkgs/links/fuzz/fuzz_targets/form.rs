//! The form that brings a password, and the chunks it may come in: the same in one piece and in many.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::fuzzing::{body, password_of};

fuzz_target!(|bytes: &[u8]| {
    for chunked in [false, true] {
        let whole = body(bytes, chunked, bytes.len().max(1));
        assert_eq!(whole, body(bytes, chunked, 1), "in pieces");
        if let Ok(Some(form)) = whole {
            assert!(form.len() <= 1024);
            password_of(&form);
        }
    }
    password_of(bytes);
});
