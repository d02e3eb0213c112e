//! nginx from Debian 13, the first Debian whose nginx speaks HTTP/3.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::server::Placement;
use crate::setup;

/// Debian 13.
const RELEASE: &str = "trixie";

/// The newest available nginx.
pub struct Newest {
    /// The directory where Debian 13's nginx is unpacked.
    place: PathBuf,
    /// What it reports about its version and build.
    built: String,
}

impl Newest {
    /// Unpacks Debian 13's nginx and its libraries into `scratch`, once, if root runs this. Otherwise uses this
    /// system's nginx. It needs the network, so call it before the bench moves into its own.
    ///
    /// # Errors
    /// When this system has no nginx either.
    pub fn find(scratch: &Path) -> Result<Self, Error> {
        let mut this = Self { place: scratch.join("nginx-http3"), built: String::new() };
        if !this.program().is_file() {
            this.unpack();
        }
        let anywhere = Placement { workers: 1, cpu: None };
        let output = this.command(anywhere)?.arg("-V").output();
        let output = output.map_err(|source| Error::Run { program: "nginx".into(), source })?;
        this.built = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok(this)
    }

    fn unpack(&self) {
        eprintln!("unpacking nginx of Debian 13");
        let program = setup::require("mmdebstrap", "mmdebstrap").unwrap_or_else(|_| "mmdebstrap".into());
        let mut unpack = Command::new(program);
        unpack.args(["--quiet", "--mode=root", "--variant=extract", "--include=nginx", RELEASE]);
        unpack.arg(&self.place).stdin(Stdio::null());
        if !unpack.status().is_ok_and(|status| status.success()) {
            eprintln!(
                "nginx of Debian 13 cannot be had: mmdebstrap unpacks it, for root. This system's is measured"
            );
        }
    }

    fn program(&self) -> PathBuf {
        self.place.join("usr/sbin/nginx")
    }

    /// A command that runs it with the C library it came with.
    ///
    /// # Errors
    /// When it is this system's nginx, and that has been removed.
    pub fn command(&self, placement: Placement) -> Result<Command, Error> {
        let program = self.program();
        if !program.is_file() {
            return Ok(placement.command(setup::require("nginx", "nginx-light")?));
        }
        let libraries = self.place.join("usr/lib/x86_64-linux-gnu");
        let mut command = placement.command(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(program);
        Ok(command)
    }

    /// Its version.
    pub fn version(&self) -> &str {
        self.built.lines().next().unwrap_or_default()
    }

    /// Whether it speaks HTTP/3.
    pub fn http3(&self) -> bool {
        self.built.contains("--with-http_v3_module")
    }

    /// Whether its OpenSSL supports key exchange with X25519MLKEM768: from 3.5 on.
    pub fn post_quantum(&self) -> bool {
        let version = self.built.split_once("built with OpenSSL ").map_or("", |(_, rest)| rest);
        let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
        (parts.next(), parts.next()) >= (Some(3), Some(5))
    }

    /// Whether its OpenSSL can let the kernel encrypt (kTLS).
    pub fn ktls(&self) -> bool {
        self.built.contains("OpenSSL 3")
    }
}
