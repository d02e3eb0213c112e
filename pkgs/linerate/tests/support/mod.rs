//! Helpers for several tests: messages about skipped tests, and a separate network.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[allow(unused_imports)] // Not every test with this module skips something.
pub use bench::skipped;

/// The directory with this build's binaries; none if the services aren't there. For the tests of this package, cargo
/// builds only this package's binaries; `make test` builds all.
pub fn binaries() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_BIN_EXE_linerate")).parent()?.to_owned();
    let there = ["linerate-links", "linerate-files", "linerate-api"]
        .iter()
        .all(|name| directory.join(name).is_file());
    if !there {
        skipped("linerate", "the services are not built beside it, so nothing runs them together");
    }
    there.then_some(directory)
}

/// A shell with its own network and process table: every port is free there, and no other services run. It ends with
/// everything that it has started. None if the kernel doesn't allow that.
pub fn apart(script: &str) -> Option<Command> {
    let namespaces = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--map-root-user"];
    // root needs no user namespace, and some machines don't allow one.
    let root = rustix::process::geteuid().is_root();
    let namespaces = &namespaces[..namespaces.len() - usize::from(root)];
    let mut try_it = Command::new("unshare");
    try_it.args(namespaces).args(["ip", "link", "set", "lo", "up"]).stderr(Stdio::null());
    if !try_it.status().is_ok_and(|status| status.success()) {
        skipped("linerate", "namespaces are not allowed, so the services are not tried on their usual ports");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-euc", &format!("ip link set lo up\n{script}"), "sh"]);
    Some(command)
}
