//! `doctor` on recorded machines.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use linerate::profile::Profile;
use serde_json::Value;

/// What a c6i.4xlarge should be like beyond what `c6i.4xlarge-8.txt` is.
const PROFILE: &str = r#"{
  "host": "aws-c6i",
  "kernel": {"sysctl": {"net.core.somaxconn": 16384, "net.ipv4.tcp_rmem": "4096 131072 16777216"}},
  "cpu": {"threads": 16},
  "nic": {"front": {
    "driver": "ena", "channels": {"combined": 8}, "rings": {"rx": 4096, "tx": 1024}, "qdisc": "fq",
    "offloads": {"rx-gro": true, "rx-lro": false}, "coalescing": {"adaptive_rx": true},
    "placement": {"policy": "spread"}
  }},
  "services": {"linerate-links.service": {"limits": {"open_files": 20480}, "listen": [":80"], "backlog": 16384}},
  "disk": {"/": {"min_free_percent": 10}},
  "time": {"max_error_ms": 1000}
}"#;

/// What the machine is besides, and a second later.
const STATE: &str = "
/proc/sys/net/core/somaxconn = 4096
/proc/sys/net/ipv4/tcp_rmem = 4096	131072	16777216
/sys/fs/cgroup/system.slice/linerate-links.service/cgroup.procs = 700
/proc/700/limits:
|Limit                     Soft Limit           Hard Limit           Units
|Max open files            20480                20480                files
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/operstate = up
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/statistics/rx_packets = 100000
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/statistics/tx_packets = 100000
statistics ens5 bw_in_allowance_exceeded=0 pps_allowance_exceeded=0 queue_0_rx_cnt=0 queue_1_rx_cnt=0 queue_2_rx_cnt=0
listener [::]:80 backlog=4096 waiting=4000
free / bytes=42 inodes=90
clock synchronised=true max_error_us=4000
later
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/statistics/rx_packets = 200000
statistics ens5 pps_allowance_exceeded=11000 queue_0_rx_cnt=80000 queue_1_rx_cnt=10000 queue_2_rx_cnt=10000
";

/// Runs `doctor` on a machine with more written down of it.
fn doctor(directory: &Path, more: &str, args: &[&str]) -> Output {
    let machine = format!("{}/tests/machines/c6i.4xlarge-8.txt", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(machine).expect("a file");
    let (machine, profile) = (directory.join("machine.txt"), directory.join("profile.json"));
    fs::write(&machine, text + more).expect("a file");
    fs::write(&profile, PROFILE).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["--machine".as_ref(), machine.as_os_str(), "doctor".as_ref(), "--profile".as_ref()])
        .arg(profile)
        .args(args)
        .output()
        .expect("the binary")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn drift_and_symptoms_are_found_together_and_ranked_by_effect() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = doctor(directory.path(), STATE, &["--json"]);
    assert_eq!(output.status.code(), Some(3));
    let examined = json(&output);
    let findings = examined["findings"].as_array().expect("findings");
    let found: Vec<(&str, &str)> = findings
        .iter()
        .map(|one| (one["rule"].as_str().expect("a rule"), one["subject"].as_str().expect("a subject")))
        .collect();
    // First what touches most of the work, then what drifted, by name.
    let expected = [
        ("accept-queue", "[::]:80"),
        ("hot-queue", "ens5 queue 0"),
        ("allowance", "ens5"),
        ("backlog", "linerate-links.service [::]:80"),
        ("coalescing", "ens5 adaptive-rx"),
        ("placement", "ens5"),
        ("rings", "ens5 rx"),
        ("sysctl", "net.core.somaxconn"),
    ];
    assert_eq!(found, expected);
    for one in findings {
        assert!(one["cost"].as_str().is_some_and(|cost| !cost.is_empty()), "{one}");
        assert!(one["rule"] == "allowance" || one["remedy"].is_string(), "{one}");
    }
    assert_eq!(json(&output)["host"], "aws-c6i");
}

#[test]
fn nothing_critical_is_a_good_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let gate = |more: &str| doctor(directory.path(), more, &["--fail-on", "critical"]).status.code();
    assert_eq!(gate(STATE), Some(0));
    assert_eq!(gate(&STATE.replace("bytes=42", "bytes=4")), Some(3));
    assert_eq!(gate(&STATE.replace("cgroup.procs = 700", "cgroup.procs =")), Some(3));
    assert_eq!(gate(&STATE.replace("operstate = up", "operstate = down")), Some(3));
}

#[test]
fn people_are_told_what_it_costs_and_what_mends_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = doctor(directory.path(), STATE, &["--explain"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "warning sysctl: net.core.somaxconn",
        "    is 4096, should be 16384",
        "    costs: connections that come in a burst are dropped before they are accepted",
        "    mend: sysctl -w net.core.somaxconn=\"16384\"",
        "    mend: ethtool -G ens5 rx 4096",
        "    mend: linerate nic apply ens5 --policy spread",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is missing in\n{text}");
    }
    assert!(text.contains("Documentation/networking/scaling.rst"), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: 8 of these should not be so\n");
}

#[test]
fn a_watch_tells_what_begins_and_what_ends_and_leaves_metrics() {
    let directory = tempfile::tempdir().expect("a directory");
    let textfile = directory.path().join("linerate.prom");
    let more =
        STATE.replace("later\n", "later\n/proc/sys/net/core/somaxconn = 16384\nfree / bytes=5 inodes=90\n");
    let path = textfile.to_str().expect("a path");
    // The first look takes the first second; after it nothing changes any more.
    let output = doctor(directory.path(), &more, &["--watch", "--looks", "2", "--textfile", path]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("+ critical disk /: 5 %\n"), "{text}");
    assert!(text.contains("+ warning allowance ens5: 11000 packets beyond: packets a second"), "{text}");
    assert!(text.contains("- allowance ens5: well again\n"), "{text}");
    assert!(!text.contains("somaxconn"), "{text}");
    let metrics = fs::read_to_string(textfile).expect("metrics");
    assert!(metrics.contains("linerate_doctor_findings{severity=\"critical\"} 1.0"), "{metrics}");
    assert!(metrics.contains("linerate_doctor_rule_findings{rule=\"allowance\"} 0.0"), "{metrics}");
}

#[test]
fn it_is_known_since_when() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state");
    let state = state.to_str().expect("a path");
    let since = || {
        json(&doctor(directory.path(), STATE, &["--json", "--state", state]))["findings"][0]["since"].clone()
    };
    let first = since();
    assert!(first.is_u64());
    assert_eq!(since(), first);
}

#[test]
fn what_the_hosts_are_built_with_is_understood() {
    let rendered = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rendered");
    // The package's own build has the sources alone.
    let Ok(hosts) = fs::read_dir(rendered) else { return };
    let profiles: Vec<_> = hosts.map(|host| host.expect("a host").path().join("profile.json")).collect();
    for path in profiles.iter().filter(|path| path.exists()) {
        let text = fs::read_to_string(path).expect("a file");
        let profile: Profile = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!profile.kernel.sysctl.is_empty() && !profile.services.is_empty(), "{}", path.display());
    }
}
