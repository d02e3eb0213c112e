//! Makes a database private if everybody on this machine can use it, because an older release or a copy made it so.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The files of an SQLite database, which have the same mode (sqlite.org/tempfiles.html).
const FILES: [&str; 3] = ["", "-wal", "-shm"];

/// The permissions of group and others.
const OTHERS: u32 = 0o077;

/// Removes permissions to an SQLite database from everybody but its owner, and says so in one line of the log. A
/// database that belongs to another user, or cannot be changed, stays as it is, and the log says so.
///
/// A group with more permissions than others was granted them on purpose, and keeps them. A group with the same
/// permissions only has a new file's defaults.
pub fn restrict(database: &Path) {
    let path = database.display();
    match narrow(database, rustix::process::geteuid().as_raw()) {
        Ok(None) => {}
        Ok(Some((from, to))) => tracing::warn!(
            %path,
            from = %format_args!("{from:03o}"),
            to = %format_args!("{to:03o}"),
            "everybody on this machine could use the database, and cannot any more; 'chmod g+rw' lets its group"
        ),
        Err(error) => tracing::warn!(
            %path,
            error = crate::exit::chain(&error),
            "the mode of the database is left as it is"
        ),
    }
}

/// Why everybody can still use a database.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("everybody on this machine can use it, and it belongs to another user")]
    NotOurs,
    #[error("everybody on this machine can use it, and it is not to be written")]
    ReadOnly,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Narrows the modes of a database's files, as far as `user` may. Returns the first one's mode before and after; none
/// if all were narrow.
///
/// Works by path: closing one of the files here would release SQLite's locks on it (sqlite.org/howtocorrupt.html,
/// section 2.2).
fn narrow(database: &Path, user: u32) -> Result<Option<(u32, u32)>, Error> {
    // The other files are beside the target of a link.
    let database = fs::canonicalize(database)?;
    let (mut changed, mut allowed) = (None, None);
    for end in FILES {
        let mut path = database.clone().into_os_string();
        path.push(end);
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => metadata,
            // The other files come and go.
            Err(error) if error.kind() != ErrorKind::NotFound || end.is_empty() => return Err(error.into()),
            _ => continue,
        };
        let from = metadata.mode() & 0o777;
        // The other files get no permissions that the database itself lacks.
        let to = from & *allowed.get_or_insert(narrowed(from) | !OTHERS);
        if to == from {
            continue;
        }
        if metadata.uid() != user {
            return Err(Error::NotOurs);
        }
        if from & 0o200 == 0 {
            return Err(Error::ReadOnly);
        }
        match fs::set_permissions(&path, Permissions::from_mode(to)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => {
                done?;
                changed.get_or_insert((from, to));
            }
        }
    }
    Ok(changed)
}

/// A mode without others' permissions, and without the group's if it only has the same.
const fn narrowed(mode: u32) -> u32 {
    let (group, everybody) = ((mode >> 3) & 7, mode & 7);
    let open = everybody != 0 && group & !everybody == 0;
    if open { mode & !OTHERS } else { mode & !0o007 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    fn make(path: &Path, mode: u32) {
        fs::write(path, "").expect("a writable directory");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn what_everybody_may_is_taken_and_what_a_group_was_given_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.db");
        for (from, to) in [
            (0o644, 0o600),
            (0o666, 0o600),
            (0o604, 0o600),
            (0o664, 0o660),
            (0o645, 0o600),
            (0o600, 0o600),
            (0o640, 0o640),
            (0o660, 0o660),
        ] {
            make(&path, from);
            let changed = narrow(&path, user()).expect("it is ours");
            assert_eq!((changed, mode(&path)), ((from != to).then_some((from, to)), to), "{from:o}");
            assert_eq!(narrow(&path, user()).expect("it is ours"), None, "once");
        }
    }

    #[test]
    fn files_beside_a_database_are_as_narrow_also_where_a_link_leads_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("real.db", file("link.db")).expect("a writable directory");
        for (database, beside, to) in [(0o644, 0o644, 0o600), (0o640, 0o644, 0o640), (0o600, 0o660, 0o600)] {
            make(&file("real.db"), database);
            make(&file("real.db-wal"), beside);
            make(&file("real.db-shm"), beside);
            make(&file("link.db-wal"), 0o644);
            assert!(narrow(&file("link.db"), user()).expect("it is ours").is_some());
            for name in ["real.db", "real.db-wal", "real.db-shm"] {
                assert_eq!(mode(&file(name)), to, "{name} of {database:o}");
            }
            assert_eq!(mode(&file("link.db-wal")), 0o644, "that is no log");
        }
    }

    #[test]
    fn a_database_of_another_user_or_that_is_read_only_stays_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.db");
        make(&path, 0o644);
        assert!(matches!(narrow(&path, user() + 1), Err(Error::NotOurs)));
        assert_eq!(mode(&path), 0o644);
        make(&directory.path().join("b.db"), 0o444);
        assert!(matches!(narrow(&directory.path().join("b.db"), user()), Err(Error::ReadOnly)));
        assert!(matches!(narrow(&directory.path().join("none.db"), user()), Err(Error::Io(_))));
        make(&path, 0o600);
        assert_eq!(narrow(&path, user() + 1).expect("nothing is open"), None);
    }
}
