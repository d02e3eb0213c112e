//! `Host` and `Origin` of a request without a key: whatever is let in is a local name according to a plain model.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use service::allowed_hosts::{AllowedHosts, SocketFamily};

/// Whether this can't be a DNS name.
fn is_local(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()) && is_port(port);
    }
    let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_address = host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    (is_address || name == "localhost" || name.ends_with(".localhost")) && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

// A line for `Host` and one for `Origin`.
fuzz_target!(|text: &str| {
    let mut lines = text.splitn(2, '\n');
    let (host, origin) = (lines.next().unwrap_or_default(), lines.next());
    let hosts = AllowedHosts::default();
    if hosts.check(SocketFamily::Network, Some(host.as_bytes()), origin.map(str::as_bytes)).is_ok() {
        assert!(is_local(host));
        assert!(origin.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, host)| is_local(host))));
    }
});
