//! Network cards: whether they are there, and how their drivers are set.

use std::fmt::Display;

use crate::doctor::{Finding, Rule, RuleContext, Severity};
use crate::nic::device;
use crate::profile::Nic;
use crate::system::{Coalescing, System, name_of};

/// The card.
pub const PRESENT: Rule = Rule {
    name: "interface",
    about: "every network card of the profile is there, and one of its links is up",
    cost: "visitors do not get here",
    source: "Documentation/ABI/testing/sysfs-class-net",
    compares: Some(|context| !context.profile.nic.is_empty()),
    check: |context| {
        context.profile.nic.iter().flat_map(|(name, nic)| present(context.system, name, nic)).collect()
    },
};

/// The size of packets.
pub const MTU: Rule = Rule {
    name: "mtu",
    about: "packets are as large as the profile says",
    cost: "more packets for the same bytes, or packets that no switch on the way takes",
    source: "Documentation/ABI/testing/sysfs-class-net",
    compares: Some(|context| any(context, |nic| nic.mtu.is_some())),
    check: |context| each(context, mtu),
};

/// The channels.
pub const CHANNELS: Rule = Rule {
    name: "channels",
    about: "a card has as many channels as the profile says",
    cost: "packets are served by fewer CPUs, or queues share one",
    source: "Documentation/networking/ethtool-netlink.rst",
    compares: Some(|context| any(context, |nic| nic.channels.combined.is_some())),
    check: |context| each(context, channels),
};

/// The rings.
pub const RINGS: Rule = Rule {
    name: "rings",
    about: "a card's rings are as long as the profile says",
    cost: "a core that looks away loses packets sooner, or rings no longer fit the cache",
    source: "Documentation/networking/ethtool-netlink.rst; modules/tuning/nic.nix",
    compares: Some(|context| any(context, |nic| nic.rings.rx.or(nic.rings.tx).is_some())),
    check: |context| each(context, rings),
};

/// The offloads.
pub const OFFLOADS: Rule = Rule {
    name: "offloads",
    about: "a card does for the kernel what the profile says",
    cost: "the CPU does for each packet what the card could do, or packets are joined that must not be",
    source: "Documentation/networking/segmentation-offloads.rst",
    compares: Some(|context| any(context, |nic| !nic.offloads.is_empty())),
    check: |context| each(context, offloads),
};

/// The coalescing.
pub const COALESCING: Rule = Rule {
    name: "coalescing",
    about: "a card gathers packets as long as the profile says before it interrupts",
    cost: "too many interrupts under load, or answers that wait",
    source: "Documentation/networking/ethtool-netlink.rst; modules/tuning/nic.nix",
    compares: Some(|context| any(context, |nic| nic.coalescing != Coalescing::default())),
    check: |context| each(context, coalescing),
};

/// The queueing discipline.
pub const QDISC: Rule = Rule {
    name: "qdisc",
    about: "packets wait to be sent in the queueing discipline of the profile",
    cost: "flows are not paced by themselves; BBR needs that",
    source: "tc-fq(8), net/sched/sch_mq.c",
    compares: Some(|context| any(context, |nic| nic.qdisc.is_some())),
    check: |context| each(context, qdisc),
};

/// The interfaces that a profile's card matches.
pub fn named(system: &dyn System, nic: &Nic) -> Vec<String> {
    let mut interfaces = device::interfaces(system).unwrap_or_default();
    interfaces.retain(|interface| {
        let base = format!("/sys/class/net/{interface}");
        let driver = system.canonical(&format!("{base}/device/driver")).unwrap_or_default();
        let mac = || system.read(&format!("{base}/address")).unwrap_or_default();
        name_of(&driver) == nic.driver
            && nic.interface.as_ref().is_none_or(|name| name == interface)
            && nic.mac.as_ref().is_none_or(|wanted| mac().trim().eq_ignore_ascii_case(wanted))
    });
    interfaces
}

/// Whether the profile has a setting of this kind for any card.
fn any(context: &RuleContext<'_>, says: fn(&Nic) -> bool) -> bool {
    context.profile.nic.values().any(says)
}

/// The findings of a check on each interface that the profile matches.
fn each(context: &RuleContext<'_>, check: fn(&dyn System, &str, &Nic) -> Vec<Finding>) -> Vec<Finding> {
    let cards = context.profile.nic.values();
    let interfaces =
        cards.flat_map(|nic| named(context.system, nic).into_iter().map(move |name| (name, nic)));
    interfaces.flat_map(|(name, nic)| check(context.system, &name, nic)).collect()
}

fn present(system: &dyn System, name: &str, nic: &Nic) -> Vec<Finding> {
    let interfaces = named(system, nic);
    if interfaces.is_empty() {
        let expected = nic.interface.as_deref().or(nic.mac.as_deref()).unwrap_or(&nic.driver);
        let finding = Finding::drift(name, expected, "no such interface").severity(Severity::Critical);
        return vec![
            finding.remedy(format!("lspci -k; dmesg | grep -i {0}  # a card of the driver {0}", nic.driver)),
        ];
    }
    let state = |interface: &str| {
        let state = system.read(&format!("/sys/class/net/{interface}/operstate"));
        state.map_or_else(|_| "unknown".to_owned(), |state| state.trim().to_owned())
    };
    // A driver that doesn't report the link state shows `unknown`, which isn't a finding.
    let states = interfaces.into_iter().map(|interface| (state(&interface), interface));
    let (up, down): (Vec<_>, Vec<_>) =
        states.partition(|(state, _)| ["up", "unknown"].contains(&state.as_str()));
    // Not every port that a driver has needs to be used.
    let severity = if up.is_empty() { Severity::Critical } else { Severity::Notice };
    let more = if up.is_empty() { "" } else { "; if it is not used, tell the card by the other's mac" };
    down.into_iter()
        .map(|(state, interface)| {
            let remedy =
                format!("ip link set {interface} up  # networkctl status {interface} says more{more}");
            Finding::drift(interface, "up", state).severity(severity).remedy(remedy)
        })
        .collect()
}

/// A finding if the value differs from the wanted one, or the driver doesn't report it.
fn differs<T: PartialEq + Display>(
    interface: &str,
    what: &str,
    wanted: Option<T>,
    found: Option<T>,
    remedy: impl FnOnce(&T) -> String,
) -> Option<Finding> {
    let wanted = wanted?;
    if found.as_ref() == Some(&wanted) {
        return None;
    }
    let found = found.map_or_else(|| "not told by the driver".to_owned(), |found| found.to_string());
    let remedy = remedy(&wanted);
    Some(Finding::drift(format!("{interface} {what}"), wanted, found).remedy(remedy))
}

fn mtu(system: &dyn System, interface: &str, nic: &Nic) -> Vec<Finding> {
    let found = system.read(&format!("/sys/class/net/{interface}/mtu")).ok();
    let found = found.and_then(|text| text.trim().parse().ok());
    let set = |mtu: &u32| format!("ip link set {interface} mtu {mtu}");
    differs(interface, "mtu", nic.mtu, found, set).into_iter().collect()
}

fn channels(system: &dyn System, interface: &str, nic: &Nic) -> Vec<Finding> {
    let found = system.channels(interface).ok().map(|channels| channels.combined);
    // With the profile's policy: without one, the command would place all queues anew by its default.
    let placement = nic.placement.clone().unwrap_or_default();
    let set = |count: &u32| placement.wish(Some(*count)).command(interface);
    differs(interface, "combined", nic.channels.combined, found, set).into_iter().collect()
}

fn rings(system: &dyn System, interface: &str, nic: &Nic) -> Vec<Finding> {
    let found = system.rings(interface).unwrap_or_default();
    let compare = |name: &str, wanted, found| {
        differs(interface, name, wanted, found, |length: &u32| {
            format!("ethtool -G {interface} {name} {length}")
        })
    };
    let (rx, tx) = (compare("rx", nic.rings.rx, found.rx), compare("tx", nic.rings.tx, found.tx));
    rx.into_iter().chain(tx).collect()
}

fn offloads(system: &dyn System, interface: &str, nic: &Nic) -> Vec<Finding> {
    let found = if nic.offloads.is_empty() { Ok(Default::default()) } else { system.offloads(interface) };
    let found = found.unwrap_or_default();
    let word = |on: bool| if on { "on" } else { "off" };
    let compare = |(name, wanted): (&String, &bool)| {
        let found = found.get(name).copied().map(word);
        let set = |wanted: &&str| format!("ethtool -K {interface} {name} {wanted}");
        differs(interface, name, Some(word(*wanted)), found, set)
    };
    nic.offloads.iter().filter_map(compare).collect()
}

fn coalescing(system: &dyn System, interface: &str, nic: &Nic) -> Vec<Finding> {
    let wanted = &nic.coalescing;
    let found = system.coalescing(interface).unwrap_or_default();
    let word = |on: Option<bool>| on.map(|on| if on { "on" } else { "off" }.to_owned());
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    [
        ("adaptive-rx", word(wanted.adaptive_rx), word(found.adaptive_rx)),
        ("adaptive-tx", word(wanted.adaptive_tx), word(found.adaptive_tx)),
        ("rx-usecs", text(wanted.rx_usecs), text(found.rx_usecs)),
        ("tx-usecs", text(wanted.tx_usecs), text(found.tx_usecs)),
        ("rx-frames", text(wanted.rx_frames), text(found.rx_frames)),
        ("tx-frames", text(wanted.tx_frames), text(found.tx_frames)),
    ]
    .into_iter()
    .filter_map(|(name, wanted, found)| {
        differs(interface, name, wanted, found, |value| format!("ethtool -C {interface} {name} {value}"))
    })
    .collect()
}

fn qdisc(system: &dyn System, interface: &str, nic: &Nic) -> Vec<Finding> {
    let Some(wanted) = &nic.qdisc else { return Vec::new() };
    let mut found = system.qdiscs(interface).unwrap_or_default();
    found.retain(|kind| kind != wanted);
    found.sort();
    found.dedup();
    let told = system.qdiscs(interface).is_ok_and(|kinds| !kinds.is_empty());
    if told && found.is_empty() {
        return Vec::new();
    }
    let found = if told { found.join(", ") } else { "none".to_owned() };
    // When mq is recreated, its queues get the default discipline.
    let remedy =
        format!("sysctl -w net.core.default_qdisc={wanted}; tc qdisc replace dev {interface} root mq");
    let finding = Finding::drift(format!("{interface} qdisc"), wanted, found);
    vec![finding.remedy(remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    const MACHINE: &str = "\
/sys/class/net/ens5 -> ../../devices/pci0000:00/0000:00:05.0/net/ens5
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/device -> ../../../0000:00:05.0
/sys/devices/pci0000:00/0000:00:05.0/driver -> /sys/bus/pci/drivers/ena
/sys/bus/pci/drivers/ena/uevent =
/sys/class/net/ens5/address = 02:00:00:00:00:01
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/address = 02:00:00:00:00:01
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/operstate = down
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/mtu = 1500
channels ens5 combined=8 max_combined=8
rings ens5 rx=1024 tx=512
offloads ens5 rx-gro=true rx-lro=true
coalescing ens5 adaptive_rx=false rx_usecs=20
qdiscs ens5 pfifo_fast pfifo_fast
";

    /// Subjects, with what was found and expected.
    fn found(rule: &Rule, nic: &str) -> Vec<(String, String)> {
        let profile = format!(r#"{{"nic": {{"front": {nic}}}}}"#);
        findings(rule, MACHINE, &profile).into_iter().map(|one| (one.subject, one.found)).collect()
    }

    #[test]
    fn every_setting_that_differs_is_found() {
        type Case<'c> = (&'c Rule, &'c str, &'c [(&'c str, &'c str)]);
        let cases: [Case<'_>; 13] = [
            (&PRESENT, r#"{"driver": "ena"}"#, &[("ens5", "down")]),
            (&PRESENT, r#"{"driver": "ixgbe"}"#, &[("front", "no such interface")]),
            (&PRESENT, r#"{"driver": "ena", "mac": "02:00:00:00:00:02"}"#, &[("front", "no such interface")]),
            (&PRESENT, r#"{"driver": "ena", "interface": "eth0"}"#, &[("front", "no such interface")]),
            (&MTU, r#"{"driver": "ena", "mtu": 9001}"#, &[("ens5 mtu", "1500")]),
            (&MTU, r#"{"driver": "ena", "mtu": 1500}"#, &[]),
            (&CHANNELS, r#"{"driver": "ena", "channels": {"combined": 4}}"#, &[("ens5 combined", "8")]),
            (&RINGS, r#"{"driver": "ena", "rings": {"rx": 4096, "tx": 512}}"#, &[("ens5 rx", "1024")]),
            (
                &OFFLOADS,
                r#"{"driver": "ena", "offloads": {"rx-gro": true, "rx-lro": false, "tx-none": true}}"#,
                &[("ens5 rx-lro", "on"), ("ens5 tx-none", "not told by the driver")],
            ),
            (
                &COALESCING,
                r#"{"driver": "ena", "coalescing": {"adaptive_rx": true, "rx_usecs": 20}}"#,
                &[("ens5 adaptive-rx", "off")],
            ),
            (&QDISC, r#"{"driver": "ena", "qdisc": "fq"}"#, &[("ens5 qdisc", "pfifo_fast")]),
            (&QDISC, r#"{"driver": "ena", "qdisc": "pfifo_fast"}"#, &[]),
            (&RINGS, r#"{"driver": "ena"}"#, &[]),
        ];
        for (rule, nic, expected) in cases {
            let expected: Vec<(String, String)> =
                expected.iter().map(|(name, found)| ((*name).to_owned(), (*found).to_owned())).collect();
            assert_eq!(found(rule, nic), expected, "{} {nic}", rule.name);
        }
    }

    #[test]
    fn of_two_ports_one_may_be_unused() {
        type Case<'c> = (&'c str, &'c str, &'c [(&'c str, Severity)]);
        let cases: [Case<'_>; 4] = [
            ("up", "up", &[]),
            ("up", "down", &[("ens2", Severity::Notice)]),
            ("lowerlayerdown", "unknown", &[("ens1", Severity::Notice)]),
            ("down", "down", &[("ens1", Severity::Critical), ("ens2", Severity::Critical)]),
        ];
        let port = |name: &str, function: &str, state: &str| {
            MACHINE.replace("ens5", name).replace("05.0", function).replace("= down", &format!("= {state}"))
        };
        for (first, second, expected) in cases {
            let machine = port("ens1", "05.1", first) + &port("ens2", "05.2", second);
            let found = findings(&PRESENT, &machine, r#"{"nic": {"front": {"driver": "ena"}}}"#);
            let found: Vec<(&str, Severity)> =
                found.iter().map(|one| (one.subject.as_str(), one.severity)).collect();
            assert_eq!(found, expected, "{first} and {second}");
        }
    }

    #[test]
    fn channels_are_set_by_the_profiles_policy() {
        for (placement, expected) in [
            ("", "linerate nic apply ens5 --policy spread --queues 4"),
            (
                r#", "placement": {"policy": "pin=0,2", "rps": false}"#,
                "linerate nic apply ens5 --policy pin=0,2 --no-rps --queues 4",
            ),
        ] {
            let profile = format!(
                r#"{{"nic": {{"front": {{"driver": "ena", "channels": {{"combined": 4}}{placement}}}}}}}"#
            );
            let found = findings(&CHANNELS, MACHINE, &profile);
            assert_eq!(found[0].remedy.as_deref(), Some(expected));
        }
    }
}
