//! nginx's configuration: whatever one says, what comes of it is written as rules are, or an error.
#![no_main]

use files::nginx;
use files::site::rules::{Error, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(imported) = nginx::import(text) else { return };
    // A host may be named twice, or a redirect lead nowhere: that is said when the rules are read.
    if let Err(Error::Syntax(error)) = Rules::parse(&imported.rules) {
        panic!("{error}:\n{}", imported.rules);
    }
});
