//! Services: whether they run, answer, and have the limits that they need.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use service::socket::Address;

use crate::doctor::{Finding, Rule, RuleContext, Severity};
use crate::nic::services::{GROUPS, processes, threads};
use crate::profile::{Limits, Service};
use crate::system::{System, TcpListener};

/// The largest page of a kernel, in bytes. The kernel rounds a limit of memory down to pages.
const PAGE: u64 = 1 << 16;

/// Whether they run.
pub const RUNNING: Rule = Rule {
    name: "running",
    about: "every service of the profile has a process",
    cost: "what it serves is not served",
    source: "Documentation/admin-guide/cgroup-v2.rst",
    compares: Some(|context| !context.profile.services.is_empty()),
    check: |context| each(context, running),
};

/// Whether they are ready.
pub const READY: Rule = Rule {
    name: "ready",
    about: "every service says that it is ready",
    cost: "what it serves is not served",
    source: "the services' /readyz",
    compares: Some(|context| any(context, |service| service.ready.is_some())),
    check: |context| each(context, ready),
};

/// Whether they listen.
pub const LISTENING: Rule = Rule {
    name: "listening",
    about: "every service listens where the profile says",
    cost: "visitors are refused",
    source: "Documentation/networking/ip-sysctl.rst; ss(8)",
    compares: Some(|context| any(context, |service| !service.listen.is_empty())),
    check: |context| each(context, listening),
};

/// How many connections may wait to be accepted.
pub const BACKLOG: Rule = Rule {
    name: "backlog",
    about: "as many connections may wait to be accepted as the profile says: the lesser of what the service asked \
            for and net.core.somaxconn was when it did",
    cost: "connections that come in a burst are dropped before they are accepted",
    source: "listen(2); ss(8)",
    compares: Some(|context| any(context, |service| service.backlog.is_some() && !service.listen.is_empty())),
    check: |context| each(context, backlog),
};

/// What they may use.
pub const LIMITS: Rule = Rule {
    name: "limits",
    about: "running services have the limits of the profile",
    cost: "a service runs out of files, threads or memory before the machine does, or takes more than its share",
    source: "getrlimit(2); Documentation/admin-guide/cgroup-v2.rst",
    compares: Some(|context| any(context, |service| service.limits != Limits::default())),
    check: |context| each(context, limits),
};

/// Where they run.
pub const CPUS: Rule = Rule {
    name: "affinity",
    about: "running services keep to their CPUs",
    cost: "workers leave the cores that their packets come to",
    source: "proc_pid_status(5), Cpus_allowed_list",
    compares: Some(|context| any(context, |service| service.cpus.is_some())),
    check: |context| each(context, cpus),
};

/// Whether the profile has a setting of this kind for any service.
fn any(context: &RuleContext<'_>, says: fn(&Service) -> bool) -> bool {
    context.profile.services.values().any(says)
}

/// The findings of a check on each service.
fn each(context: &RuleContext<'_>, check: fn(&dyn System, &str, &Service) -> Vec<Finding>) -> Vec<Finding> {
    context.profile.services.iter().flat_map(|(unit, service)| check(context.system, unit, service)).collect()
}

fn running(system: &dyn System, unit: &str, _: &Service) -> Vec<Finding> {
    if !processes(system, unit).is_empty() {
        return Vec::new();
    }
    let finding = Finding::drift(unit, "a process", "none").severity(Severity::Critical);
    vec![finding.remedy(format!("systemctl restart {unit}; journalctl -u {unit}"))]
}

fn ready(system: &dyn System, unit: &str, service: &Service) -> Vec<Finding> {
    let Some(url) = &service.ready else { return Vec::new() };
    let found = match system.get(url) {
        Ok(200) => return Vec::new(),
        Ok(status) => format!("{url} answers {status}"),
        Err(error) => format!("{url}: {error}"),
    };
    let finding = Finding::drift(unit, "ready", found).severity(Severity::Critical);
    vec![finding.remedy(format!("journalctl -u {unit}"))]
}

/// Whether a listening socket covers the wanted address. The kernel shows a socket for all addresses of both families
/// as an IPv6 one; it covers every address. If `[::]` is wanted, a socket for all addresses of one family is enough.
fn serves(listener: &TcpListener, wanted: &SocketAddr) -> bool {
    let everywhere = listener.address.ip().is_unspecified();
    let same = listener.address.ip() == wanted.ip()
        || wanted.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && everywhere
        || everywhere && (listener.address.is_ipv6() || wanted.is_ipv4());
    listener.address.port() == wanted.port() && same
}

/// The sockets that serve each TCP address of a service.
fn listeners(system: &dyn System, service: &Service) -> Vec<(SocketAddr, Vec<TcpListener>)> {
    if service.listen.is_empty() {
        return Vec::new();
    }
    let all = system.listeners().unwrap_or_default();
    let tcp = service.listen.iter().filter_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        _ => None,
    });
    tcp.map(|wanted| (wanted, all.iter().filter(|one| serves(one, &wanted)).copied().collect())).collect()
}

fn listening(system: &dyn System, unit: &str, service: &Service) -> Vec<Finding> {
    let tcp = listeners(system, service).into_iter().filter(|(_, found)| found.is_empty());
    let unix = service.listen.iter().filter_map(|address| match address {
        Address::Unix(path) => Some(path.display().to_string()),
        _ => None,
    });
    let unix = unix.filter(|path| {
        // Num, RefCount, Protocol, Flags, Type, St, Inode, Path (proc_pid_net(5)).
        let sockets = system.read("/proc/net/unix").unwrap_or_default();
        !sockets.lines().any(|line| line.split_whitespace().nth(7) == Some(path))
    });
    let finding = |address: String| {
        let finding = Finding::drift(unit, format!("listens on {address}"), "nobody does");
        finding.severity(Severity::Critical).remedy(format!("systemctl restart {unit}; journalctl -u {unit}"))
    };
    tcp.map(|(address, _)| address.to_string()).chain(unix).map(finding).collect()
}

fn backlog(system: &dyn System, unit: &str, service: &Service) -> Vec<Finding> {
    let Some(wanted) = service.backlog else { return Vec::new() };
    let short = listeners(system, service).into_iter().filter_map(|(address, found)| {
        // Each worker has its own socket on the shared port, so the smallest backlog counts.
        let least = found.iter().map(|listener| listener.backlog).min()?;
        (least < wanted).then_some((address, least))
    });
    let finding = |(address, least)| {
        let finding = Finding::drift(format!("{unit} {address}"), wanted, least);
        finding.remedy(format!("sysctl -w net.core.somaxconn={wanted}; systemctl restart {unit}"))
    };
    short.map(finding).collect()
}

fn limits(system: &dyn System, unit: &str, service: &Service) -> Vec<Finding> {
    let limits = &service.limits;
    let group = |file: &str| {
        let text = system.read(&format!("{GROUPS}/{unit}/{file}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let processes = processes(system, unit);
    if processes.is_empty() {
        return Vec::new();
    }
    let files = |pid: u32| {
        let text = system.read(&format!("/proc/{pid}/limits")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown").to_owned()
    };
    let open_files = limits.open_files.and_then(|wanted| {
        let found = processes.iter().map(|&pid| files(pid)).find(|found| *found != wanted.to_string());
        found.map(|found| ("open files", wanted, found))
    });
    let of_group = |name, file: &str, wanted: Option<u64>, unit: u64| {
        let found = group(file);
        let less = |wanted: u64| wanted.checked_sub(found.parse().ok()?);
        let differs = |wanted: &u64| less(*wanted).is_none_or(|less| less >= unit);
        wanted.filter(differs).map(|wanted| (name, wanted, found))
    };
    [
        open_files,
        of_group("tasks", "pids.max", limits.tasks, 1),
        of_group("memory", "memory.max", limits.memory_bytes, PAGE),
    ]
    .into_iter()
    .flatten()
    .map(|(name, wanted, found)| {
        let finding = Finding::drift(format!("{unit} {name}"), wanted, found);
        finding.remedy(format!("systemctl daemon-reload; systemctl restart {unit}"))
    })
    .collect()
}

fn cpus(system: &dyn System, unit: &str, service: &Service) -> Vec<Finding> {
    let Some(wanted) = &service.cpus else { return Vec::new() };
    let outside = threads(system, unit).into_iter().find(|cpus| !cpus.is_subset(wanted));
    let finding = |cpus| {
        let finding = Finding::drift(format!("{unit} cpus"), wanted, cpus);
        finding.remedy(format!("systemctl restart {unit}"))
    };
    outside.map(finding).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    const MACHINE: &str = "\
/sys/fs/cgroup/system.slice/linerate-links.service/cgroup.procs = 700
/sys/fs/cgroup/system.slice/linerate-links.service/pids.max = 1024
/sys/fs/cgroup/system.slice/linerate-links.service/memory.max = max
/proc/700/limits:
|Limit                     Soft Limit           Hard Limit           Units
|Max open files            1024                 524288               files
/proc/700/task/700/status:
|Name:	linerate-links
|Cpus_allowed_list:	0-1
/proc/700/task/701/status:
|Name:	worker
|Cpus_allowed_list:	0-3
/proc/net/unix:
|Num       RefCount Protocol Flags    Type St Inode Path
|00000000: 00000002 00000000 00010000 0001 01 12345 /run/links.sock
listener [::]:80 backlog=4096 waiting=0
listener 127.0.0.1:8081 backlog=16384 waiting=0
get http://127.0.0.1:8081/readyz 503
";

    fn found(rule: &Rule, unit: &str, service: &str) -> Vec<(String, String)> {
        found_on(MACHINE, rule, unit, service)
    }

    fn found_on(machine: &str, rule: &Rule, unit: &str, service: &str) -> Vec<(String, String)> {
        let profile = format!(r#"{{"services": {{"{unit}": {service}}}}}"#);
        findings(rule, machine, &profile).into_iter().map(|one| (one.subject, one.found)).collect()
    }

    #[test]
    fn every_way_a_service_may_be_wrong_is_found() {
        let links = "linerate-links.service";
        type Case<'c> = (&'c Rule, &'c str, &'c str, &'c [(&'c str, &'c str)]);
        let cases: [Case<'_>; 14] = [
            (&RUNNING, links, "{}", &[]),
            (&RUNNING, "linerate-api.service", "{}", &[("linerate-api.service", "none")]),
            (
                &READY,
                links,
                r#"{"ready": "http://127.0.0.1:8081/readyz"}"#,
                &[(links, "http://127.0.0.1:8081/readyz answers 503")],
            ),
            (&LISTENING, links, r#"{"listen": [":80", "10.0.0.1:80", "127.0.0.1:8081"]}"#, &[]),
            (&LISTENING, links, r#"{"listen": ["10.0.0.1:8081"]}"#, &[(links, "nobody does")]),
            (&LISTENING, links, r#"{"listen": ["unix:/run/links.sock", "systemd:http"]}"#, &[]),
            (&LISTENING, links, r#"{"listen": ["unix:/run/other.sock"]}"#, &[(links, "nobody does")]),
            (
                &BACKLOG,
                links,
                r#"{"listen": [":80", "127.0.0.1:8081"], "backlog": 16384}"#,
                &[("linerate-links.service [::]:80", "4096")],
            ),
            (
                &LIMITS,
                links,
                r#"{"limits": {"open_files": 20480, "tasks": 1024, "memory_bytes": 1048576}}"#,
                &[("linerate-links.service open files", "1024"), ("linerate-links.service memory", "max")],
            ),
            (&LIMITS, links, r#"{"limits": {"open_files": 1024}}"#, &[]),
            (&LIMITS, "linerate-api.service", r#"{"limits": {"open_files": 1}}"#, &[]),
            (&CPUS, links, r#"{"cpus": "0-1"}"#, &[("linerate-links.service cpus", "0-3")]),
            (&CPUS, links, r#"{"cpus": "0-7"}"#, &[]),
            (&CPUS, links, "{}", &[]),
        ];
        for (rule, unit, service, expected) in cases {
            let expected: Vec<(String, String)> =
                expected.iter().map(|(name, found)| ((*name).to_owned(), (*found).to_owned())).collect();
            assert_eq!(found(rule, unit, service), expected, "{} {service}", rule.name);
        }
    }

    #[test]
    fn a_limit_of_memory_may_be_rounded_down_to_pages() {
        for (max, holds) in
            [(1_492_230_912, true), (1_492_230_144, true), (1_492_165_376, false), (1_492_234_240, false)]
        {
            let machine = MACHINE.replace("memory.max = max", &format!("memory.max = {max}"));
            let service = r#"{"limits": {"memory_bytes": 1492230912}}"#;
            let found = found_on(&machine, &LIMITS, "linerate-links.service", service);
            assert_eq!(found.is_empty(), holds, "{max}: {found:?}");
        }
    }
}
