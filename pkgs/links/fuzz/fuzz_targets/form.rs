//! The form with a password: any bytes contain one password or none, which is not longer than the form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::fuzzing::password_of;

fuzz_target!(|bytes: &[u8]| {
    if let Some(password) = password_of(bytes) {
        // Each byte that isn't UTF-8 is replaced by up to three bytes.
        assert!(password.len() <= 3 * bytes.len());
    }
});
