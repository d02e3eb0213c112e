//! Connections and datagrams that were dropped before a service saw them.

use super::severity;
use crate::doctor::sample::share;
use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// The rule.
pub const OVERFLOWS: Rule = Rule {
    name: "listen-overflows",
    about: "no connection is dropped because too many wait to be accepted",
    cost: "clients that connect wait a second and more until they try again",
    source: "Documentation/networking/snmp_counter.rst, ListenOverflows",
    compares: None,
    check: overflows,
};

/// Datagrams.
pub const DATAGRAMS: Rule = Rule {
    name: "udp-drops",
    about: "no datagram is dropped because a socket's buffer is full",
    cost: "QUIC takes it for congestion and slows down",
    source: "Documentation/networking/snmp_counter.rst, UdpRcvbufErrors",
    compares: None,
    check: datagrams,
};

/// A queue that is filling up.
pub const WAITING: Rule = Rule {
    name: "accept-queue",
    about: "no socket has more than half of the connections waiting that may",
    cost: "a service does not accept as fast as clients come: the next burst is dropped",
    source: "ss(8), Recv-Q and Send-Q of sockets that listen",
    compares: None,
    check: waiting,
};

fn overflows(context: &RuleContext<'_>) -> Vec<Finding> {
    let lost = context.interval.grew("tcpext/ListenOverflows");
    let taken = context.interval.grew("tcp/PassiveOpens");
    if lost == 0 {
        return Vec::new();
    }
    let share = share(lost, taken);
    let finding = Finding::symptom("tcp", format!("{lost} connections dropped, {taken} taken"));
    let remedy = "sysctl -w net.core.somaxconn=16384  # then restart what ss -ltn shows with Recv-Q at Send-Q; or \
                  more workers";
    vec![finding.severity(severity(share)).effect(share).remedy(remedy)]
}

fn datagrams(context: &RuleContext<'_>) -> Vec<Finding> {
    let both = |four: &str, six: &str| context.interval.grew(four).saturating_add(context.interval.grew(six));
    let lost = both("udp/RcvbufErrors", "snmp6/Udp6RcvbufErrors");
    let taken = both("udp/InDatagrams", "snmp6/Udp6InDatagrams");
    if lost == 0 {
        return Vec::new();
    }
    let share = share(lost, taken);
    let finding = Finding::symptom("udp", format!("{lost} datagrams dropped, {taken} taken"));
    let remedy = "sysctl -w net.core.rmem_max=7500000  # then reload what ss -lunp shows; or more workers";
    vec![finding.severity(severity(share)).effect(share).remedy(remedy)]
}

fn waiting(context: &RuleContext<'_>) -> Vec<Finding> {
    let listeners = context.system.listeners().unwrap_or_default();
    let full =
        listeners.iter().filter(|listener| listener.backlog > 0 && listener.waiting * 2 > listener.backlog);
    full.map(|listener| {
        let share = f64::from(listener.waiting) / f64::from(listener.backlog);
        let found = format!("{} of {} wait", listener.waiting, listener.backlog);
        let finding = Finding::symptom(listener.address.to_string(), found).severity(Severity::Warning);
        finding.effect(share).remedy("top -H  # what else takes the CPUs of its workers; or more workers")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::symptoms;

    #[test]
    fn what_is_lost_weighs_by_its_share() {
        let machine = "/proc/net/netstat:
|TcpExt: ListenOverflows
|TcpExt: 3
/proc/net/snmp:
|Tcp: PassiveOpens
|Tcp: 100
|Udp: InDatagrams RcvbufErrors
|Udp: 10 1
later
/proc/net/netstat:
|TcpExt: ListenOverflows
|TcpExt: 4
/proc/net/snmp:
|Tcp: PassiveOpens
|Tcp: 109
|Udp: InDatagrams RcvbufErrors
|Udp: 20 1
";
        let found = symptoms(&OVERFLOWS, machine, 1.0);
        assert_eq!((found[0].effect, found[0].severity), (Some(0.1), Severity::Warning));
        assert!(symptoms(&DATAGRAMS, machine, 1.0).is_empty());
    }

    #[test]
    fn datagrams_of_both_families_count() {
        let machine = "/proc/net/snmp:
|Udp: InDatagrams RcvbufErrors
|Udp: 10 1
/proc/net/snmp6:
|Udp6InDatagrams                 \t100
|Udp6RcvbufErrors                \t0
later
/proc/net/snmp:
|Udp: InDatagrams RcvbufErrors
|Udp: 20 3
/proc/net/snmp6:
|Udp6InDatagrams                 \t170
|Udp6RcvbufErrors                \t18
";
        let found = symptoms(&DATAGRAMS, machine, 1.0);
        assert_eq!(found[0].found, "20 datagrams dropped, 80 taken");
        assert_eq!((found[0].effect, found[0].severity), (Some(0.2), Severity::Warning));
    }

    #[test]
    fn a_queue_is_full_beyond_its_half() {
        let machine =
            "listener 0.0.0.0:80 backlog=128 waiting=64\nlistener 0.0.0.0:81 backlog=128 waiting=65\n";
        let found = symptoms(&WAITING, machine, 1.0);
        assert_eq!(found.iter().map(|one| one.subject.as_str()).collect::<Vec<_>>(), ["0.0.0.0:81"]);
    }
}
