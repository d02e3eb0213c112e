//! `Forwarded` and `X-Forwarded-For`: whatever a client sends, its address is the one that a trusted proxy has seen.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use service::proxies::{Proxies, ProxyArgs};

// The first line is one header as the client sends it, and the rest is the other header.
fuzz_target!(|text: &[u8]| {
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let (sent, other) = (parts.next().unwrap_or_default(), parts.next());
    let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
    let proxies = Proxies::from(&ProxyArgs { proxy_protocol: false, trusted_proxies: trusted });
    let proxy = Some(IpAddr::from([10, 0, 0, 1]));
    let client = Some(IpAddr::from([203, 0, 113, 9]));
    let behind = |more: &[u8]| [sent, more].concat();
    let one = |value: &[u8]| Some(value.to_vec());
    let told = |forwarded: Option<Vec<u8>>, x_forwarded_for: Option<Vec<u8>>| {
        proxies.client(proxy, forwarded.as_deref().into_iter(), x_forwarded_for.as_deref().into_iter())
    };

    // One or two proxies append to the line, or add a separate line.
    for more in [&b", for=203.0.113.9"[..], b", for=\"203.0.113.9:1\";proto=https, for=10.0.0.2"] {
        assert_eq!(told(one(&behind(more)), None), client);
        let lines = [sent, &more[1..]];
        assert_eq!(proxies.client(proxy, lines.into_iter(), [].into_iter()), client);
        // The other header can cancel this one's address, but not replace it with another.
        let both = told(one(&behind(more)), other.map(<[u8]>::to_vec));
        assert!(both == client || both == proxy);
    }
    for more in [&b", 203.0.113.9"[..], b", 203.0.113.9:1, 10.0.0.2"] {
        assert_eq!(told(None, one(&behind(more))), client);
        let lines = [sent, &more[1..]];
        assert_eq!(proxies.client(proxy, [].into_iter(), lines.into_iter()), client);
        let both = told(other.map(<[u8]>::to_vec), one(&behind(more)));
        assert!(both == client || both == proxy);
    }
    // A proxy that has added nothing: the result is still some address.
    assert!(told(one(sent), None).is_some() && told(None, one(sent)).is_some());
});
