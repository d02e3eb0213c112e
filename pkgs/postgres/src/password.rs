//! The source of a password: the connection string, or one of libpq's password files.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::conninfo::{Conninfo, Endpoint, Host};

/// The longest password file that is read.
const LONGEST: u64 = 1 << 20;

/// Who connects, and to which database.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The host's name as given; `localhost` for a socket.
    pub host: &'a str,
    /// Its port.
    pub port: u16,
    /// PostgreSQL's role.
    pub user: &'a str,
    /// The database.
    pub database: &'a str,
}

/// Why there is no password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The password file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Others may read the password file.
    #[error("{} is open to others than its owner: chmod 0600", .0.display())]
    Open(PathBuf),
    /// No token could be made.
    #[error("no password could be made: {0}")]
    Token(String),
}

/// The password for a host, from the connection string or from the password file.
pub fn of(conninfo: &Conninfo, endpoint: &Endpoint) -> Result<Option<String>, PasswordError> {
    if conninfo.password.is_some() {
        return Ok(conninfo.password.clone());
    }
    let home = || Some(PathBuf::from(env::var_os("HOME").filter(|home| !home.is_empty())?).join(".pgpass"));
    let variable = || env::var_os("PGPASSFILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let (path, named) = match conninfo.passfile.clone().or_else(variable) {
        Some(path) => (path, true),
        None => match home() {
            Some(path) => (path, false),
            None => return Ok(None),
        },
    };
    let text = match read(&path) {
        Ok(text) => text,
        Err(PasswordError::File { source, .. }) if !named && source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(find(&text, login(conninfo, endpoint)))
}

/// The login at this host.
pub fn login<'a>(conninfo: &'a Conninfo, endpoint: &'a Endpoint) -> Login<'a> {
    let user = conninfo.user.as_deref().unwrap_or_default();
    Login {
        host: match &endpoint.host {
            Host::Tcp(host) => host,
            Host::Unix(_) => "localhost",
        },
        port: endpoint.port,
        user,
        database: conninfo.database.as_deref().unwrap_or(user),
    }
}

fn read(path: &Path) -> Result<String, PasswordError> {
    let wrong = |source| PasswordError::File { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(wrong)?;
    // The file is one of systemd's credentials, which only the service can read, whatever their mode.
    let is_credential =
        env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|directory| path.starts_with(directory));
    if metadata.mode() & 0o077 != 0 && !is_credential {
        return Err(PasswordError::Open(path.to_owned()));
    }
    if metadata.len() > LONGEST {
        return Err(wrong(io::Error::from(io::ErrorKind::FileTooLarge)));
    }
    fs::read_to_string(path).map_err(wrong)
}

/// The password of the first line that matches: `host:port:database:user:password`. `*` matches anything, and `\`
/// escapes `:` and `\` (postgresql.org/docs/current/libpq-pgpass.html).
fn find(text: &str, login: Login<'_>) -> Option<String> {
    let port = login.port.to_string();
    let wanted = [login.host, port.as_str(), login.database, login.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (mut fields, mut rest) = (Vec::with_capacity(4), line.chars());
        let mut field = String::new();
        while fields.len() < 4 {
            match rest.next()? {
                '\\' => field.push(rest.next()?),
                ':' => fields.push(std::mem::take(&mut field)),
                letter => field.push(letter),
            }
        }
        if !fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted) {
            return None;
        }
        let mut password = String::new();
        while let Some(letter) = rest.next() {
            password.push(if letter == '\\' { rest.next().unwrap_or('\\') } else { letter });
        }
        Some(password)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let file = "# comment:5432:x:y:z\nshort:line\ndb1:5432:users:ada:one\ndb\\:2:*:*:ada:t\\\\w\\:o\n*:*:*:bob:any\n";
        for (host, port, database, user, password) in [
            ("db1", 5432, "users", "ada", Some("one")),
            ("db1", 5433, "users", "ada", None),
            ("db:2", 1, "x", "ada", Some("t\\w:o")),
            ("localhost", 5432, "x", "bob", Some("any")),
            ("db1", 5432, "users", "eve", None),
        ] {
            assert_eq!(
                find(file, Login { host, port, user, database }).as_deref(),
                password,
                "{host}:{port} {user}"
            );
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_and_so_is_one_that_is_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pgpass");
        let text = format!("postgres://ada@db/users?passfile={}", path.display());
        let conninfo: Conninfo = text.parse().expect("a URL");
        let password = || of(&conninfo, &conninfo.hosts[0]);
        assert!(matches!(password(), Err(PasswordError::File { .. })));
        fs::write(&path, "db:5432:*:ada:secret\n").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        assert!(matches!(password(), Err(PasswordError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        assert_eq!(password().expect("it is read").as_deref(), Some("secret"));
    }
}
