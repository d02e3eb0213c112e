//! Kernel settings.

use crate::doctor::{Finding, Rule, RuleContext};
use crate::profile::Value;

/// What each setting costs if it differs; the reasons for the values are in `modules/tuning/kernel.nix`.
const COSTS: &[(&str, &str)] = &[
    ("net.core.somaxconn", "connections that come in a burst are dropped before they are accepted"),
    (
        "net.ipv4.tcp_max_syn_backlog",
        "handshakes that come in a burst go on without TCP options, by SYN cookies",
    ),
    ("net.ipv4.tcp_rmem", "uploads of one client stay below bandwidth times delay"),
    ("net.ipv4.tcp_wmem", "downloads of one client stay below bandwidth times delay"),
    ("net.core.rmem_max", "QUIC loses packets that come in a burst"),
    ("net.core.wmem_max", "QUIC waits for the kernel to send"),
    ("net.ipv4.tcp_notsent_lowat", "more kernel memory for each connection, and old data ahead of an answer"),
    ("net.ipv4.tcp_slow_start_after_idle", "a kept-alive connection starts slowly again after each pause"),
    ("net.ipv4.tcp_mtu_probing", "connections through routers that drop large packets silently hang"),
    ("net.core.default_qdisc", "no pacing by flow; BBR needs it"),
    ("net.ipv4.tcp_congestion_control", "throughput under loss is not what was measured"),
    ("net.ipv4.ip_local_port_range", "fewer connections to a database or an upstream at a time"),
    ("vm.min_free_kbytes", "the network card finds no memory at line rate and drops packets"),
];

/// Settings that a socket has from the moment a process prepares it.
const AT_START: [&str; 3] = ["net.core.somaxconn", "net.core.rmem_max", "net.core.wmem_max"];

/// The rule.
pub const RULE: Rule = Rule {
    name: "sysctl",
    about: "settings of the kernel are those of the profile",
    cost: "the kernel does not work as it was measured",
    source: "modules/tuning/kernel.nix; Documentation/admin-guide/sysctl",
    compares: Some(|context| !context.profile.kernel.sysctl.is_empty()),
    check,
};

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let compared = context.profile.kernel.sysctl.iter().filter_map(|(name, wanted)| {
        let found = context.system.read(&path(name)).map(|content| Value::read(&content));
        let found = match found {
            Ok(found) if found == *wanted => return None,
            Ok(found) => found.to_string(),
            Err(error) => format!("not to be read: {error}"),
        };
        let cost = COSTS.iter().find(|(known, _)| known == name).map_or("", |(_, cost)| cost);
        let then = if AT_START.contains(&name.as_str()) { "  # then reload the services" } else { "" };
        let remedy = format!("sysctl -w {name}=\"{wanted}\"{then}");
        Some(Finding::drift(name, wanted, found).cost(cost).remedy(remedy))
    });
    compared.collect()
}

/// The path of a setting. As in sysctl(8), dots separate the parts of a name, unless a slash comes first: then slashes
/// do, and an interface name may contain dots.
fn path(name: &str) -> String {
    let parted = match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name.to_owned(),
        _ => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
    };
    format!("/proc/sys/{parted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    #[test]
    fn a_setting_is_found_whichever_way_its_name_is_written() {
        for (name, expected) in [
            ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
            ("net/ipv4/conf/eth0.5/forwarding", "/proc/sys/net/ipv4/conf/eth0.5/forwarding"),
            ("net.ipv4.conf.eth0/5.forwarding", "/proc/sys/net/ipv4/conf/eth0.5/forwarding"),
        ] {
            assert_eq!(path(name), expected);
        }
    }

    #[test]
    fn what_differs_is_found_and_nothing_else() {
        let machine =
            "/proc/sys/net/core/somaxconn = 4096\n/proc/sys/net/ipv4/tcp_rmem = 4096\t131072\t16777216\n";
        let profile = r#"{"kernel": {"sysctl": {
            "net.core.somaxconn": 16384, "net.ipv4.tcp_rmem": "4096 131072 16777216", "net.none": 1}}}"#;
        let found = findings(&RULE, machine, profile);
        let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(subjects, ["net.core.somaxconn", "net.none"]);
        assert_eq!((found[0].expected.as_deref(), found[0].found.as_str()), (Some("16384"), "4096"));
        let remedies: Vec<_> = found.iter().filter_map(|finding| finding.remedy.as_deref()).collect();
        assert_eq!(
            remedies,
            [
                "sysctl -w net.core.somaxconn=\"16384\"  # then reload the services",
                "sysctl -w net.none=\"1\""
            ]
        );
        assert!(found[1].found.starts_with("not to be read"));
    }
}
