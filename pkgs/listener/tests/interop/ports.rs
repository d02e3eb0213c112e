//! A port that is free for TCP isn't always free for UDP.

use std::process::Command;

use crate::server::Server;

/// Ports in a separate network, half of which are taken for UDP.
const HALF_TAKEN: &str = "
import os, socket, sys
with open('/proc/sys/net/ipv4/ip_local_port_range', 'w') as ports:
    ports.write('40000 40063')
taken = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(32)]
for index, one in enumerate(taken):
    one.bind(('127.0.0.1', 40000 + index // 2 * 4 + index % 2))
    one.set_inheritable(True)
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_port_that_the_kernel_chooses_is_free_for_datagrams_too() {
    let lo = "ip link set lo up && exec \"$@\"";
    let network = || {
        let mut network = Command::new("unshare");
        network.args(["--net", "sh", "-c", lo, "sh"]);
        network
    };
    if !network().arg("true").output().is_ok_and(|output| output.status.success()) {
        return bench::skip::skipped("ports that are taken for UDP", "no network of its own is allowed");
    }
    // Each would hit a taken one with probability 0.5.
    for _ in 0..8 {
        let mut command = network();
        command.args(["python3", "-c", HALF_TAKEN]);
        Server::start_by(command);
    }
}
