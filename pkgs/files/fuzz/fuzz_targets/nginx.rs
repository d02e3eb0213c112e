//! nginx's configuration: whatever it says, the result is written as valid rules, or is an error.
#![no_main]

use files::nginx;
use files::site::rules::{Error, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(imported) = nginx::import(text) else { return };
    // A host may be none, or a redirect lead nowhere: that is reported when the rules are read.
    if let Err(Error::Syntax(error)) = Rules::parse(&imported.rules) {
        panic!("{error}:\n{}", imported.rules);
    }
});
