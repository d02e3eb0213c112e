//! The servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench::server::{Placement, Server};
use bench::{Error, setup};

use crate::network::Network;
use crate::{NGINX, OTHER, OURS, SMALL, directory};

/// Our binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_linerate-files");

/// One worker on CPU 0.
pub const PLACEMENT: Placement = Placement { workers: 1, cpu: Some(0) };

/// static-web-server, in the version that is measured.
const WEB_SERVER: &str = "static-web-server@^2";

/// Starts a server.
pub type Start = fn(&Network, &Path) -> Result<Server, Error>;

/// Ours, with this engine and name.
pub fn ours(network: &Network, root: &Path, name: &'static str, engine: &str) -> Result<Server, Error> {
    ours_by(Path::new(BINARY), network, root, name, engine)
}

/// Another build of ours, if one should be measured too; see [`setup::other_build`].
pub fn other_build(network: &Network, root: &Path) -> Result<Option<Server>, Error> {
    let program = setup::other_build("linerate-files")?;
    program.map(|program| ours_by(&program, network, root, OTHER, "auto")).transpose()
}

fn ours_by(
    program: &Path,
    network: &Network,
    root: &Path,
    name: &'static str,
    engine: &str,
) -> Result<Server, Error> {
    let address = network.address()?;
    let mut command = PLACEMENT.command(program);
    command
        .args(["serve", "--workers", "1", "--engine", engine, "--listen", &address.to_string(), "--root"])
        .arg(root);
    Server::start(name, address, &mut command)
}

/// Ours with its defaults.
pub fn ours_started(network: &Network, root: &Path) -> Result<Server, Error> {
    ours(network, root, OURS, "auto")
}

/// Makes nginx keep files open, as ours does: it looks them up again after a minute, its default, while ours is
/// notified of changes.
pub const OPEN_FILES: &str = "open_file_cache max=1024 inactive=1h; open_file_cache_valid 60s; \
                              open_file_cache_min_uses 1; open_file_cache_errors on;";

/// nginx at its best for this purpose: files kept open, sendfile with full packets, no log, kept-alive connections. For
/// a file that fits into one packet with its head, one read and one write cost it a tenth less.
pub fn nginx(network: &Network, root: &Path) -> Result<Server, Error> {
    let program = setup::require("nginx", "nginx-light")?;
    let address = network.address()?;
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let configuration = format!(
        "daemon off; {user} worker_processes 1; pid nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 8192; multi_accept on; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 4000000000; keepalive_timeout 1h;\n\
         {OPEN_FILES} default_type application/octet-stream;\n\
         server {{ listen {address} reuseport backlog=4096; root {};\n\
         location /{}/ {{ sendfile off; tcp_nopush off; }} }} }}\n",
        root.display(),
        directory(SMALL),
    );
    // Beside the files, since it lives as long.
    let file = root.join(format!("nginx-{}.conf", address.port()));
    fs::write(&file, configuration).map_err(Error::file(&file))?;
    let mut command = PLACEMENT.command(program);
    command.arg("-p").arg(root).arg("-c").arg(&file);
    Server::start(NGINX, address, &mut command)
}

/// static-web-server with one thread, and with everything off except sending files.
pub fn web_server(network: &Network, root: &Path, program: &Path) -> Result<Server, Error> {
    let address = network.address()?;
    let mut command = PLACEMENT.command(program);
    command
        .args(["--host", &address.ip().to_string(), "--port", &address.port().to_string(), "--root"])
        .arg(root);
    command.args(["--threads-multiplier", "1", "--log-level", "error"]);
    Server::start("static-web-server", address, &mut command)
}

/// Installs static-web-server into the target directory, once. None, with a message, if that fails.
pub fn install() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-web-server");
    let program = place.join("bin/static-web-server");
    if program.is_file() {
        return Some(program);
    }
    eprintln!("installing {WEB_SERVER}");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--quiet", "--locked", "--no-default-features", WEB_SERVER, "--root"]).arg(&place);
    let installed = cargo.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    if !installed {
        eprintln!("static-web-server cannot be installed, and is left out");
    }
    installed.then_some(program)
}
