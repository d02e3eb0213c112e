//! Tests what the kernel reports in a separate network namespace.

mod support;

use std::env;
use std::io;
use std::process::Command;
use std::time::Duration;

use linerate::system::{Real, System};

/// Set if the process runs in the test's own network namespace.
const INSIDE: &str = "LINERATE_TEST_NETWORK";

/// Long enough for a busy kernel; no answer takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn interfaces_are_asked_set_and_listened_to() {
    if env::var_os(INSIDE).is_some() {
        return inside(&Real::default());
    }
    let pair = "ip link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1\nexec \"$@\"";
    let Some(mut apart) = support::apart(pair) else { return };
    let this = env::current_exe().expect("this test");
    apart.arg(this).args(["--exact", "interfaces_are_asked_set_and_listened_to"]).env(INSIDE, "1");
    let output = apart.output().expect("a shell");
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Unknown device type") {
        return support::skipped("network", "the kernel has no veth");
    }
    let told = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&told));
}

/// Asks about a pair of connected interfaces, both down. `v0` has two queues.
fn inside(machine: &Real) {
    let changes = machine.changes(Duration::ZERO).expect("changes");
    assert!(changes.is_empty(), "nothing has changed since it listens: {changes:?}");
    let up = Command::new("ip").args(["link", "set", "v0", "up"]).status().expect("ip");
    assert!(up.success());
    // The kernel sends the notification before the command ends.
    let changes = machine.changes(PATIENCE).expect("changes");
    assert!(changes.contains("v0") && !changes.contains("v1"), "{changes:?}");

    let channels = machine.channels("v0").expect("channels");
    assert_eq!((channels.max_rx, channels.max_tx), (2, 2), "{channels:?}");
    assert_eq!(machine.qdiscs("v0").expect("disciplines"), ["noqueue"]);
    assert_eq!(machine.rings("v0").expect_err("no rings").kind(), io::ErrorKind::Unsupported);
    let offloads = machine.offloads("v0").expect("offloads");
    assert_eq!(offloads.get("rx-gro-hw"), Some(&false), "{offloads:?}");
    assert_eq!(offloads.get("tx-checksum-ip-generic"), Some(&true), "{offloads:?}");

    let error = machine.set_channels("v0", 3).expect_err("no combined channels");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("exceeds maximum"), "{error}");
}
