//! `doctor` on recorded machines.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use linerate::profile::Profile;
use serde_json::Value;

/// A file from `tests/machines`.
fn machines(name: &str) -> String {
    format!("{}/tests/machines/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A c6i.4xlarge with many faults, and its counters one second later.
fn faulty() -> String {
    let mut text = fs::read_to_string(machines("c6i.4xlarge-8.txt")).expect("a file");
    for (well, faulty) in [
        ("somaxconn = 16384", "somaxconn = 4096"),
        ("listener [::]:80 backlog=16384 waiting=0", "listener [::]:80 backlog=4096 waiting=4000"),
        ("rings ens5 rx=4096", "rings ens5 rx=1024"),
        ("coalescing ens5 adaptive_rx=true", "coalescing ens5 adaptive_rx=false"),
    ] {
        assert!(text.contains(well), "{well}");
        text = text.replace(well, faulty);
    }
    text + "later
/sys/devices/pci0000:00/0000:00:05.0/net/ens5/statistics/rx_packets = 1700000
statistics ens5 pps_allowance_exceeded=11000 queue_0_rx_cnt=280000 queue_1_rx_cnt=203000 queue_2_rx_cnt=203000
statistics ens5 queue_3_rx_cnt=203000 queue_4_rx_cnt=203000 queue_5_rx_cnt=203000 queue_6_rx_cnt=203000
statistics ens5 queue_7_rx_cnt=203000
"
}

/// Runs `doctor` on a machine, with a c6i.4xlarge's profile.
fn doctor(directory: &Path, machine: &str, args: &[&str]) -> Output {
    let path = directory.join("machine.txt");
    fs::write(&path, machine).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["--machine".as_ref(), path.as_os_str(), "doctor".as_ref(), "--profile".as_ref()])
        .arg(machines("c6i.4xlarge-8.json"))
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
    let output = doctor(directory.path(), &faulty(), &["--json"]);
    assert_eq!(output.status.code(), Some(3));
    let examined = json(&output);
    let findings = examined["findings"].as_array().expect("findings");
    let found: Vec<(&str, &str)> = findings
        .iter()
        .map(|one| (one["rule"].as_str().expect("a rule"), one["subject"].as_str().expect("a subject")))
        .collect();
    // Findings that affect most of the work come first, then differences from the profile, sorted by name.
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
        assert!(one["remedy"].is_string(), "{one}");
    }
    assert_eq!(json(&output)["host"], "c6i.4xlarge-8");
}

#[test]
fn nothing_critical_is_a_good_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let gate = |more: &str| doctor(directory.path(), more, &["--fail-on", "critical"]).status.code();
    assert_eq!(gate(&faulty()), Some(0));
    assert_eq!(gate(&faulty().replace("bytes=42", "bytes=4")), Some(3));
    assert_eq!(gate(&faulty().replace("cgroup.procs = 700", "cgroup.procs =")), Some(3));
    assert_eq!(gate(&faulty().replace("operstate = up", "operstate = down")), Some(3));
}

#[test]
fn people_are_told_what_it_costs_and_what_mends_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = doctor(directory.path(), &faulty(), &["--explain"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "warning sysctl: net.core.somaxconn",
        "    is 4096, should be 16384",
        "    costs: connections that come in a burst are dropped before they are accepted",
        "    mend: sysctl -w net.core.somaxconn=\"16384\"  # then reload the services",
        "    mend: ethtool -G ens5 rx 4096",
        "    mend: linerate nic apply ens5 --policy pin=0,1,2,3,4,5,6,7",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is missing in\n{text}");
    }
    assert!(text.contains("Documentation/networking/scaling.rst"), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: 8 of what was found should not be so\n");
}

#[test]
fn a_watch_tells_what_begins_and_what_ends_and_leaves_metrics() {
    let directory = tempfile::tempdir().expect("a directory");
    let textfile = directory.path().join("linerate.prom");
    let more = faulty()
        .replace("later\n", "later\n/proc/sys/net/core/somaxconn = 16384\nfree / bytes=5 inodes=90\n");
    let path = textfile.to_str().expect("a path");
    // The first check watches the first second. After that, nothing changes.
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
        json(&doctor(directory.path(), &faulty(), &["--json", "--state", state]))["findings"][0]["since"]
            .clone()
    };
    let first = since();
    assert!(first.is_u64());
    assert_eq!(since(), first);
}

#[test]
fn a_proxy_is_not_asked_whether_a_service_is_ready() {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ready = format!("http://{}/readyz", listener.local_addr().expect("an address"));
    let profile = directory.path().join("profile.json");
    fs::write(&profile, format!(r#"{{"services":{{"x.service":{{"ready":"{ready}"}}}}}}"#)).expect("a file");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("written");
        }
    });
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["--json", "doctor", "--profile"])
        .arg(&profile)
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .env_remove("LINERATE_MACHINE")
        .output()
        .expect("the binary");
    let examined = json(&output);
    let findings = examined["findings"].as_array().expect("findings");
    let of = |rule: &str| findings.iter().filter(|one| one["rule"] == rule).collect::<Vec<_>>();
    assert_eq!(of("running").len(), 1, "{examined}");
    assert!(of("ready").is_empty(), "{examined}");
}

#[test]
fn what_the_hosts_are_built_with_is_understood() {
    let rendered = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rendered");
    let Ok(hosts) = fs::read_dir(rendered) else {
        return support::skipped("doctor", "tests/rendered is not there, as in the package's own build");
    };
    let profiles: Vec<_> = hosts.map(|host| host.expect("a host").path().join("profile.json")).collect();
    for path in profiles.iter().filter(|path| path.exists()) {
        let text = fs::read_to_string(path).expect("a file");
        let profile: Profile = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!profile.kernel.sysctl.is_empty() && !profile.services.is_empty(), "{}", path.display());
    }
}

#[test]
fn without_a_profile_it_is_said_what_was_not_looked_at() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(["--machine", &machines("virtio-4.txt"), "doctor"])
            .args(args)
            .env_remove("LINERATE_PROFILE")
            .output()
            .expect("the binary");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let text = run(&[]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("Nothing found: 15 of 38 rules looked at."), "{text}");
    let idle = "Not looked at without a profile (--profile FILE): running, ready, listening, backlog, limits, affinity, \
                interface, mtu, channels, rings, offloads, coalescing, qdisc, placement, irqbalance, sysctl, parameters, \
                governor, cpus, disk, image, clock, credits.";
    assert_eq!(lines.next(), Some(idle), "{text}");
    // A watch prints the same, but only once.
    let watched = run(&["--watch", "--looks", "2"]);
    assert_eq!(watched.matches("Not looked at").count(), 1, "{watched}");
    let examined: Value = serde_json::from_str(&run(&["--json"])).expect("JSON");
    assert_eq!(examined["idle"].as_array().map(Vec::len), Some(23), "{examined}");
    let explained = run(&["--profile", &machines("virtio-4.json")]);
    assert!(
        explained.starts_with("Nothing found: ") || explained.starts_with("All is well: "),
        "{explained}"
    );
    let full = doctor(tempfile::tempdir().expect("a directory").path(), &faulty(), &[]);
    let full = String::from_utf8(full.stdout).expect("UTF-8");
    assert!(
        full.contains("\n0 critical, 8 warnings, 0 notices; ") && !full.contains("a profile ("),
        "{full}"
    );
}

#[test]
fn what_was_applied_is_compared_without_a_profile_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("machine.txt");
    let machine = fs::read_to_string(machines("virtio-4.txt")).expect("a file");
    let saved = r#"{"interface":"eth0","policy":"pin=3","steering":true,"managed":[],"originals":[]}"#;
    fs::write(&path, machine + &format!("/run/linerate/nic-eth0.json = {saved}\n")).expect("written");
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_linerate"))
            .arg("--machine")
            .arg(&path)
            .args(args)
            .env_remove("LINERATE_PROFILE")
            .output()
            .expect("the binary")
    };
    let output = run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("    is different in ") && text.contains(", should be pin=3"), "{text}");
    assert!(text.contains("\n0 critical, 1 warning, 0 notices; 17 of 38 rules looked at.\n"), "{text}");
    let verify = run(&["nic", "verify", "--policy", "pin=3"]);
    let message = String::from_utf8_lossy(&verify.stderr);
    let differ =
        text.split("different in ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    assert!(message.starts_with(&format!("error: {differ} settings")), "{message} {text}");
}
