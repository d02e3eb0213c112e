//! Which database a command works on.

use std::env;
use std::path::PathBuf;

/// Where the database is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DatabaseArgs {
    /// The database file. Default: $STATE_DIRECTORY/links.db under systemd, otherwise
    /// $XDG_DATA_HOME/linerate/links.db or ~/.local/share/linerate/links.db.
    #[arg(long, value_name = "PATH", env = "LINERATE_LINKS_DATABASE")]
    pub database: Option<PathBuf>,
}

impl DatabaseArgs {
    /// The file asked for, or the default.
    pub fn path(&self) -> PathBuf {
        self.database.clone().unwrap_or_else(default_database)
    }
}

/// Where the database is unless told otherwise: in systemd's state directory (the first, where it has
/// several), or in the user's data directory (XDG Base Directory Specification), or right here.
pub fn default_database() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directories) = set("STATE_DIRECTORY") {
        let first = env::split_paths(&directories).next().unwrap_or_default();
        return first.join("links.db");
    }
    set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|directory| directory.is_absolute())
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".local/share")))
        .map_or_else(|| PathBuf::from("links.db"), |data| data.join("linerate/links.db"))
}
