//! nginx as Debian 13 has it: the first of Debian's that speaks HTTP/3.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench::setup;

use crate::peers::PLACEMENT;

/// Debian 13.
const RELEASE: &str = "trixie";

fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("nginx-http3")
}

/// Unpacks it and its libraries into the target directory, once, where root may.
pub fn unpack() {
    if command().is_some() {
        return;
    }
    eprintln!("unpacking nginx of Debian 13");
    let program = setup::require("mmdebstrap", "mmdebstrap").unwrap_or_else(|_| "mmdebstrap".into());
    let mut unpack = Command::new(program);
    unpack.args(["--quiet", "--mode=root", "--variant=extract", "--include=nginx", RELEASE]).arg(place());
    if !unpack.stdin(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!(
            "nginx of Debian 13 cannot be had: mmdebstrap unpacks it, for root. This system's is measured"
        );
    }
}

/// What runs it, with the C library it came with; none where it is not there.
pub fn command() -> Option<Command> {
    let libraries = place().join("usr/lib/x86_64-linux-gnu");
    let program = place().join("usr/sbin/nginx");
    program.is_file().then(|| {
        let mut command = PLACEMENT.command(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(program);
        command
    })
}
