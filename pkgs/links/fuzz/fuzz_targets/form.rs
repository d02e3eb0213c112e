//! The form with a password: whatever it is, it has one or none, which is no longer than the form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::fuzzing::password_of;

fuzz_target!(|bytes: &[u8]| {
    if let Some(password) = password_of(bytes) {
        // Anything that isn't UTF-8 is replaced, with up to three bytes for one.
        assert!(password.len() <= 3 * bytes.len());
    }
});
