//! The head of a request: any bytes are parsed the same in one piece and in many. A visit contains nothing that could
//! end the header field into which it is copied.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::front::request::{Head, parse};

fuzz_target!(|bytes: &[u8]| {
    let Head::Visit(request, used) = parse(bytes) else { return };
    let head = &bytes[..used];
    assert!(head.ends_with(b"\n"));
    assert_eq!(parse(head), parse(bytes), "what follows a head does not change it");
    for cut in 0..used {
        assert_eq!(parse(&bytes[..cut]), Head::Partial, "cut at {cut} of {used}");
    }
    let query = request.query.unwrap_or_default();
    for text in [request.path, query] {
        assert!(!text.bytes().any(|byte| byte.is_ascii_control() || byte == b' '), "{text:?}");
    }
    assert!(!request.path.contains(['?', '%']));
});
