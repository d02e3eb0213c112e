//! Rules files: whatever one says, what it adds to an answer is complete header lines.
#![no_main]

use files::site::rules::Rules;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(rules) = Rules::parse(text) else { return };
    for path in [&b"/"[..], b"/a/b.html", b"/\xff*"] {
        let policy = rules.policy(path, false);
        assert!(policy.fields.is_empty() || policy.fields.ends_with("\r\n"));
        for line in policy.fields.split_terminator("\r\n") {
            let (name, value) = line.split_once(": ").expect("a field line");
            assert!(!name.is_empty() && !name.contains(|one: char| one.is_whitespace() || one.is_control()), "{line:?}");
            assert!(value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)), "{line:?}");
        }
    }
});
