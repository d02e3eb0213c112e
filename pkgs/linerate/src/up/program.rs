//! Where the services' binaries are.

use std::env;
use std::path::PathBuf;

use super::Error;

/// A program's path: next to this program, where cargo and Nix put it, or on `PATH`.
pub fn find(name: &'static str) -> Result<PathBuf, Error> {
    let own = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let places = own.into_iter().chain(env::split_paths(&path));
    places.map(|place| place.join(name)).find(|program| program.is_file()).ok_or(Error::Program(name))
}
