//! The head of a request and its path: whatever arrives, it is parsed the same in one piece and in many, and an
//! accepted path leads down.
#![no_main]

use files::http::head::parse;
use files::http::path::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((request, used))) = parse(bytes) else { return };
    let head = &bytes[..used];
    assert!(head.ends_with(b"\r\n\r\n"));
    assert_eq!(parse(head), parse(bytes), "what follows a head does not change it");
    for cut in 0..used {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut} of {used}");
    }
    for hidden in [false, true] {
        let Ok(path) = decode(request.path, hidden) else { continue };
        assert!(!path.iter().any(u8::is_ascii_control) && !path.starts_with(b"/"));
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            assert!(name != b".." && name != b".", "{path:?}");
            assert!(!name.is_empty() || names.peek().is_none(), "{path:?}");
            assert!(hidden || !name.starts_with(b".") || name == b".well-known", "{path:?}");
        }
    }
});
