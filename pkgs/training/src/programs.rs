//! The instrumented programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::server::{Server, free_address};
use bench::{Error, certificate};

use crate::service::Service;

/// Where a program writes its profile when it ends (<https://clang.llvm.org/docs/UsersManual.html>).
const PROFILE: &str = "LLVM_PROFILE_FILE";

/// The programs to train.
#[derive(Debug)]
pub struct Programs {
    /// Where they are.
    pub directory: PathBuf,
    /// Where their profiles go.
    pub profiles: PathBuf,
    /// How long each load lasts, in seconds.
    pub seconds: u64,
}

/// The services.
pub const API: &str = "linerate-api";
pub const FILES: &str = "linerate-files";
pub const LINKS: &str = "linerate-links";

/// Of a service's profile, what follows its name. Those of commands have another.
const SERVED: &str = "-served-";

impl Programs {
    fn command(&self, name: &str, kind: &str) -> Command {
        let mut command = Command::new(self.directory.join(name));
        // All runs of a program are added up in one file (`%m`).
        command.env(PROFILE, self.profiles.join(format!("{name}{kind}%m.profraw")));
        command
    }

    /// A service that has left no profile when it ended.
    pub fn untrained(&self) -> Option<&'static str> {
        let left: Vec<_> = fs::read_dir(&self.profiles)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        let trained = |name: &str| {
            let start = format!("{name}{SERVED}");
            left.iter().any(|left| left.to_string_lossy().starts_with(&start))
        };
        [API, FILES, LINKS].into_iter().find(|name| !trained(name))
    }

    /// Runs a command to its end, and returns what it prints.
    ///
    /// # Errors
    /// When it fails; with what it printed.
    pub fn run(&self, name: &'static str, arguments: &[&str]) -> Result<String, Error> {
        let output = self.command(name, "-ran-").args(arguments).output();
        let output = output.map_err(|source| Error::Run { program: name.into(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Failed { program: name.into(), status: output.status, output: printed })
    }

    /// Starts a service with these arguments, with and without TLS, by a certificate that is made in `scratch`.
    ///
    /// # Errors
    /// When it doesn't start; with what it printed.
    pub fn serve(&self, name: &'static str, scratch: &Path, arguments: &[&str]) -> Result<Service, Error> {
        certificate::make(scratch)?;
        let [clear, secure, admin] = [free_address()?, free_address()?, free_address()?];
        let mut command = self.command(name, SERVED);
        command.args(["serve", "--workers", "1", "--listen", &clear.to_string()]);
        command.args(["--tls-listen", &secure.to_string(), "--admin", &admin.to_string()]);
        command.arg("--cert").arg(scratch.join(certificate::CHAIN));
        command.arg("--key").arg(scratch.join(certificate::KEY));
        let server = Server::start(name, clear, command.args(arguments))?;
        Ok(Service { server, secure, admin, seconds: self.seconds })
    }
}
