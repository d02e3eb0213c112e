//! The network between server and load: loopback, or a pair of virtual Ethernet ports between two network namespaces.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// The addresses of a pair's two ends (RFC 2544's range for benchmarks).
const SERVER: &str = "198.18.0.1";
const CLIENT: &str = "198.18.0.2";

/// The load's namespace.
const CLIENTS: &str = "linerate-bench-clients";

/// A network between a server and its load.
pub struct Network {
    name: &'static str,
    /// Whether the load has its own namespace.
    apart: bool,
}

impl Network {
    /// The loopback device.
    pub fn loopback() -> Self {
        Self { name: "loopback", apart: false }
    }

    /// A pair of virtual Ethernet ports, which exists as long as this does; none if they aren't allowed.
    pub fn veth_pair(name: &'static str, mtu: u16) -> Option<Self> {
        let made = [
            format!("netns add {CLIENTS}"),
            format!("link add bench0 mtu {mtu} type veth peer name bench1 mtu {mtu} netns {CLIENTS}"),
            format!("addr add {SERVER}/30 dev bench0"),
            "link set bench0 up".to_owned(),
            format!("-n {CLIENTS} addr add {CLIENT}/30 dev bench1"),
            format!("-n {CLIENTS} link set bench1 up"),
        ];
        let made = made.iter().all(|arguments| ip(arguments));
        if !made {
            eprintln!("{name}: not permitted here, left out");
            ip(&format!("netns del {CLIENTS}"));
        }
        made.then_some(Self { name, apart: true })
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is the loopback device.
    pub fn is_loopback(&self) -> bool {
        !self.apart
    }

    /// An address for a server that nobody listens on at present.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        let host = if self.apart { SERVER } else { "127.0.0.1" };
        std::net::TcpListener::bind((host, 0))?.local_addr()
    }

    /// A command for a program of the load, on CPU 1 if there is one.
    pub fn client(&self, program: impl AsRef<OsStr>) -> Command {
        let cpu =
            if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) { "1" } else { "0" };
        let mut command = Command::new("taskset");
        command.args(["-c", cpu]);
        if self.apart {
            command.args(["ip", "netns", "exec", CLIENTS]);
        }
        command.arg(program);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.apart {
            ip("link del bench0");
            ip(&format!("netns del {CLIENTS}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
