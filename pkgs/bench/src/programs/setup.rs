//! What a bench needs around it: programs from Debian packages, and its own network.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::Error;

/// Tells the bench that it already runs in its own network namespace.
const ISOLATED: &str = "LINERATE_BENCH_ISOLATED";

/// Where the congestion control for new sockets is set, per network namespace.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Names a directory with another build of our programs, such as `target/release` of an earlier commit, which a bench
/// measures as well.
const OTHER_BUILD: &str = "LINERATE_BENCH_OTHER";

/// `program` from the other build, if `LINERATE_BENCH_OTHER` names its directory.
///
/// # Errors
/// When it isn't in that directory.
pub fn other_build(program: &str) -> Result<Option<PathBuf>, Error> {
    let Some(directory) = env::var_os(OTHER_BUILD).filter(|path| !path.is_empty()) else { return Ok(None) };
    let path = PathBuf::from(directory).join(program);
    let file = fs::File::open(&path);
    file.map(|_| Some(path.clone())).map_err(Error::file(&path))
}

/// Makes sure `program` is there, and installs `package` if it is missing and root runs this.
///
/// # Errors
/// When it is missing and can't be installed.
pub fn require(program: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    install(package)?;
    find(program).ok_or(Error::Missing { program, package })
}

/// Installs a Debian package if root runs this; otherwise does nothing.
pub(crate) fn install(package: &str) -> Result<(), Error> {
    if rustix::process::geteuid().is_root() && find("apt-get").is_some() {
        eprintln!("installing {package}");
        for arguments in [&["update", "-qq"][..], &["install", "-qqy", "--no-install-recommends", package]] {
            let mut apt = Command::new("apt-get");
            apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
            apt.status().map_err(|source| Error::Run { program: "apt-get".into(), source })?;
        }
    }
    Ok(())
}

/// A program's path. Daemons are in `sbin`, which most users' `PATH` lacks.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    places.map(|place| place.join(program)).find(|candidate| candidate.is_file())
}

/// Moves the bench into its own network namespace, whose sockets use cubic, and returns the outcome in words.
///
/// BBR, the default on some machines, paces even loopback, so the figures would measure the pacing. Other listeners and
/// their traffic stay outside. The process replaces itself with itself under `unshare`; call this first. If namespaces
/// aren't allowed, the bench continues in the machine's network and says so.
pub fn isolate() -> String {
    if owns_network() {
        return isolated();
    }
    let mut arguments = vec!["--net"];
    if !rustix::process::geteuid().is_root() {
        arguments.push("--map-root-user");
    }
    let allowed = Command::new("unshare").args(&arguments).arg("true").stderr(Stdio::null()).status();
    let why = match (allowed, env::current_exe()) {
        (Ok(status), Ok(this)) if status.success() => {
            let mut again = Command::new("unshare");
            again.args(&arguments).arg("--").arg(this).args(env::args_os().skip(1)).env(ISOLATED, "1");
            again.exec().to_string()
        }
        (Err(error), _) | (_, Err(error)) => error.to_string(),
        (Ok(_), _) => "not permitted".into(),
    };
    format!("the machine's network, shared (no namespace: {why}), {}", congestion_control())
}

/// Whether the bench has its own network, and so its own settings. True only after [`isolate`] has worked.
pub fn owns_network() -> bool {
    env::var_os(ISOLATED).is_some()
}

/// Brings up loopback and sets cubic, or reno if an unprivileged namespace may not have cubic.
fn isolated() -> String {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    let up = up.is_ok_and(|status| status.success());
    let set = ["cubic", "reno"].iter().any(|name| fs::write(CONGESTION_CONTROL, name).is_ok());
    let trouble = match (up, set) {
        (true, true) => "",
        (false, _) => " (`ip link set lo up` failed)",
        (true, false) => " (not ours to set)",
    };
    format!("a network namespace of its own, {}{trouble}", congestion_control())
}

fn congestion_control() -> String {
    fs::read_to_string(CONGESTION_CONTROL)
        .map_or("congestion control unknown".into(), |name| name.trim().into())
}
