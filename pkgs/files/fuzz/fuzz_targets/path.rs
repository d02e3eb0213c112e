//! Paths: an accepted path leads down, and its escaped form is accepted as the same.
#![no_main]

use std::fmt::Write;

use files::http::path::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &str)| {
    let (hidden, raw) = input;
    let Ok(path) = decode(raw, hidden) else { return };
    assert!(!path.starts_with(b"/") && !path.contains(&0));
    assert!(path.split(|byte| *byte == b'/').all(|name| name != b".." && name != b"."));
    let mut escaped = String::new();
    for byte in path.iter() {
        match byte {
            b'/' => escaped.push('/'),
            byte => write!(escaped, "%{byte:02X}").expect("room"),
        }
    }
    assert_eq!(decode(&format!("/{escaped}"), hidden), Ok(path));
});
