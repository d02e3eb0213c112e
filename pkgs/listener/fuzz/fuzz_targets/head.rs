//! The head of a request: whatever arrives, it is parsed the same in one piece and in many, it ends where it says, and
//! the length of the body is unambiguous.
#![no_main]

use libfuzzer_sys::fuzz_target;
use listener::Limits;
use listener::fuzzing::decode::{Framing, parse};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { head_bytes: 1024, fields: 16, ..Limits::default() };
    let Ok(Some((head, used))) = parse(bytes, &limits) else { return };
    let raw = &bytes[..used];
    assert!(raw.ends_with(b"\r\n\r\n") && used <= limits.head_bytes);
    // HTTP/1.0 may omit Host, which is then taken from an absolute target.
    assert!(head.fields.len() <= limits.fields + 1);
    assert!(!raw.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || raw[at - 1] != b'\r')));

    let count = |name: &str| head.fields.get_all(name).iter().count();
    assert!(count("host") <= 1 && count("content-length") + count("transfer-encoding") <= 1);
    match head.framing {
        Framing::Chunked => assert_eq!(count("transfer-encoding"), 1),
        Framing::Length(0) => {}
        Framing::Length(length) => {
            let told = head.fields["content-length"].to_str().expect("digits");
            assert!(told.bytes().all(|byte| byte.is_ascii_digit()) && told.parse() == Ok(length));
        }
    }
    for value in head.fields.values() {
        assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }

    let (again, same) = parse(raw, &limits).expect("what follows a head does not change it").expect("whole");
    assert_eq!((same, &again.fields, &again.uri), (used, &head.fields, &head.uri));
    for cut in 0..used {
        assert!(!matches!(parse(&raw[..cut], &limits), Ok(Some(_))), "cut at {cut} of {used}");
    }
});
