//! Targets: an accepted target is valid in a header, reads back unchanged, and does not lead to one of our own hosts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use links::target::TargetPolicy;

fuzz_target!(|text: &str| {
    let own = ["s.example", "127.0.0.1:8080", "[2001:db8::1]:81"].map(str::to_owned);
    let policy = TargetPolicy { own_hosts: own.into(), ..TargetPolicy::default() };
    let Ok(once) = policy.validate(text) else { return };
    assert!(once.bytes().all(|byte| byte.is_ascii_graphic()), "{once:?}");
    assert!(once.len() <= policy.max_bytes);
    assert_eq!(policy.validate(&once).as_deref(), Ok(&*once));
    let host = once.split('/').nth(2).and_then(|authority| authority.split(':').next());
    assert_ne!(host, Some("s.example"));
});
