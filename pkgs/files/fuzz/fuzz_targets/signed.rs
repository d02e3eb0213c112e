//! Signed URLs: a signed URL is valid until it expires, whatever else is in its query; any other isn't.
#![no_main]

use std::time::{Duration, UNIX_EPOCH};

use files::site::signature::{Key, unsigned};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, &[u8], &str)| {
    let (expires, path, query) = input;
    let expires = u64::from(expires);
    let key = Key::new(&[b'k'; 32]).expect("as long as it has to be");
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let signed = key.sign(path, expires);
    if expires > 0 {
        assert!(key.is_signed(path, Some(&signed), at(expires - 1)));
        let other = Key::new(&[b'o'; 32]).expect("as long as it has to be");
        assert!(!other.is_signed(path, Some(&signed), at(expires - 1)));
        assert!(!key.is_signed(&[path, b"x"].concat(), Some(&signed), at(expires - 1)));
    }
    assert!(!key.is_signed(path, Some(&signed), at(expires + 1)));
    // Nobody can make one without the key; whatever was there besides the signature is still there without it.
    assert!(!key.is_signed(path, Some(query), at(0)), "{query}");
    assert!(!unsigned(query).split('&').any(|one| one.starts_with("signature=") || one.starts_with("expires=")));
});
