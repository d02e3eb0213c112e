//! nginx.

use std::fs;

use tempfile::TempDir;

use crate::error::Error;
use crate::server::{Placement, Server, free_address};
use crate::setup;

/// A running nginx, and the directory of its files.
pub struct Nginx {
    // Dropped, and so stopped, before its directory is removed.
    server: Server,
    _directory: TempDir,
}

impl Nginx {
    /// The status of the answers of [`Nginx::start`]: nginx adds a page to its own 307, which the others don't send.
    pub const STATUS: u16 = 300;

    /// Starts nginx, which answers any request with a `Location` and no body, like the other peers.
    pub fn start(placement: Placement) -> Result<Self, Error> {
        Self::serving(placement, &Self::redirecting())
    }

    /// The content of a `server` block that answers this way.
    pub fn redirecting() -> String {
        let (target, status) = (super::TARGET, Self::STATUS);
        let answer =
            format!("default_type \"\"; add_header Location \"{target}\" always; return {status} \"\";");
        format!("location / {{ {answer} }}")
    }

    /// Starts nginx at its best for this purpose: a listening socket per worker, no log, kept-alive connections.
    /// `server` is the rest of the `server` block.
    pub fn serving(placement: Placement, server: &str) -> Result<Self, Error> {
        let program = setup::require("nginx", "nginx-light")?;
        let directory = tempfile::tempdir()?;
        let address = free_address()?;
        let configuration = format!(
            "daemon off;\n\
             worker_processes {};\n\
             pid nginx.pid;\n\
             error_log stderr crit;\n\
             events {{ worker_connections 8192; multi_accept on; }}\n\
             http {{\n\
               access_log off;\n\
               keepalive_requests 4000000000;\n\
               keepalive_timeout 1h;\n\
               server {{\n\
                 listen {address} reuseport backlog=4096;\n\
                 {server}\n\
               }}\n\
             }}\n",
            placement.workers
        );
        let file = directory.path().join("nginx.conf");
        fs::write(&file, configuration).map_err(Error::file(&file))?;
        let mut command = placement.command(program);
        command.arg("-p").arg(directory.path()).arg("-c").arg(&file);
        Ok(Self { server: Server::start("nginx", address, &mut command)?, _directory: directory })
    }

    /// The process.
    pub fn server(&self) -> &Server {
        &self.server
    }
}
