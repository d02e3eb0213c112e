//! versitygw, which serves a directory over S3: the object storage of tests and benches.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::Error;
use crate::server::{Placement, Server, free_address};
use crate::{setup, skipped};

/// The key that signs requests.
pub const ACCESS_KEY: &str = "linerate";
/// Its secret.
pub const SECRET_KEY: &str = "linerate-secret";

/// The only bucket.
pub const BUCKET: &str = "site";

/// The script that installs it, in the source tree.
const INSTALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/install.sh");

/// A running gateway with a bucket; stopped when dropped.
pub struct Gateway {
    // Dropped, and so stopped, before its directory is removed.
    server: Server,
    directory: TempDir,
}

impl Gateway {
    /// Starts a gateway. None, with a message that `test` is skipped, if it is missing and can't be built.
    ///
    /// # Panics
    /// When it doesn't start.
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            skipped(test, "versitygw cannot be built: it takes Go and its module proxy");
            return None;
        };
        Some(run(&program).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Stores an object, with further request headers.
    ///
    /// # Panics
    /// When it isn't stored.
    pub fn put(&self, key: &str, bytes: &[u8], fields: &[&str]) {
        let file = self.directory.path().join("upload");
        fs::write(&file, bytes).expect("room for an upload");
        let file = file.to_str().expect("a path of text");
        let mut arguments = vec!["-T", file];
        fields.iter().for_each(|field| arguments.extend(["-H", field]));
        self.ask(key, &arguments).unwrap_or_else(|error| panic!("{key} is not stored: {error}"));
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// When it isn't deleted.
    pub fn delete(&self, key: &str) {
        self.ask(key, &["-X", "DELETE"]).unwrap_or_else(|error| panic!("{key} is not deleted: {error}"));
    }

    fn ask(&self, key: &str, arguments: &[&str]) -> Result<(), Error> {
        ask(self.server.address(), &format!("{BUCKET}/{key}"), arguments)
    }
}

fn run(program: &Path) -> Result<Gateway, Error> {
    let (directory, address) = (tempfile::tempdir()?, free_address()?);
    let place = |name: &str| -> Result<PathBuf, Error> {
        let path = directory.path().join(name);
        fs::create_dir(&path).map_err(Error::file(&path))?;
        Ok(path)
    };
    // ETags are stored separately, so that any file system will do.
    let (sidecar, files) = (place("sidecar")?, place("files")?);
    let mut command = Placement { workers: 1, cpu: None }.command(program);
    command
        .args(["--quiet", "--keep-alive", "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port"])
        .arg(address.to_string())
        .args(["posix", "--sidecar"])
        .arg(sidecar)
        .arg(files);
    let server = Server::start("versitygw", address, &mut command)?;
    ask(address, BUCKET, &["-X", "PUT"])?;
    Ok(Gateway { server, directory })
}

fn ask(address: SocketAddr, path: &str, arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "120",
            "--aws-sigv4",
            "aws:amz:us-east-1:s3",
        ])
        .args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}"), "--output", "/dev/null"])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(arguments)
        .arg(format!("http://{address}/{path}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Run { program: "curl".into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Failed { program: "curl".into(), status: output.status, output: said })
}

/// The program, built if it is missing.
fn program() -> Option<PathBuf> {
    let built = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        let mut found: Vec<_> = fs::read_dir(cache.join("linerate"))
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"versitygw-v"))
            })
            .map(|path| path.join("versitygw"))
            .filter(|path| path.is_file())
            .collect();
        found.sort();
        found.pop()
    };
    // Run the script first: it knows which version is wanted, and prints nothing if that version is installed.
    let installed =
        Command::new(INSTALL).arg("versitygw").stdin(Stdio::null()).stdout(Stdio::null()).status();
    match installed {
        Ok(status) if status.success() => built(),
        _ => setup::find("versitygw"),
    }
}
