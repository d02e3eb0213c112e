//! The program in its two builds.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::Error;

/// The build for every stage but the last: cargo's defaults, if the bench was built with the profile `ladder`.
pub const DEFAULT: &str = env!("CARGO_BIN_EXE_ladder");

/// The profile with cargo's defaults.
const PROFILE: &str = "ladder";

/// The last stage's build: the workspace's release profile, for this CPU, in a separate directory.
pub fn last() -> PathBuf {
    native().join("release/ladder")
}

fn native() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("native")
}

/// Whether [`DEFAULT`] was built with the profile `ladder`. Prints a message if it wasn't.
pub fn is_built_by_profile() -> bool {
    let built = Path::new(DEFAULT).parent().and_then(Path::file_name) == Some(PROFILE.as_ref());
    if !built {
        eprintln!("error: run it with --profile {PROFILE}, as `make bench-ladder` does");
    }
    built
}

/// Builds the last stage's program.
///
/// # Errors
/// When cargo fails.
pub fn build_last() -> Result<(), Error> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--locked", "--release", "--package", env!("CARGO_PKG_NAME"), "--bin", "ladder"])
        .arg("--target-dir")
        .arg(native())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "-C target-cpu=native")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .map_err(|source| Error::Run { program: "cargo".into(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed { program: "cargo build".into(), status, output: "as said above".into() })
}
