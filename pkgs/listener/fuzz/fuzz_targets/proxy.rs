//! The PROXY header: whatever arrives is read within its limits, and what a proxy writes is read as intended.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use listener::proxy::{Header, MAX_BYTES, length, parse, take};

fuzz_target!(|bytes: &[u8]| {
    // A reader with room for the longest header never waits for more.
    let taken = take(bytes);
    assert!(bytes.len() < MAX_BYTES || !matches!(taken, Ok(None)));
    let Some((fixed, rest)) = bytes.split_first_chunk::<16>() else { return };
    let Ok(length) = length(fixed) else { return };
    let Some(rest) = rest.get(..length) else { return };
    let parsed = parse(fixed, rest);
    assert_eq!(taken.ok().flatten(), parsed.as_ref().ok().map(|header| (*header, 16 + length)));
    let Ok(Header::Proxied { remote, local }) = parsed else { return };
    let ip = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let ports = [remote.port().to_be_bytes(), local.port().to_be_bytes()].concat();
    assert!(rest.starts_with(&[ip(remote), ip(local), ports].concat()));
});
