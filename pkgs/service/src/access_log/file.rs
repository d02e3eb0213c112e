//! Appends lines to a file, or writes them to standard output.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use super::options::Destination;
use super::output::Output;

/// Lines contain clients' data, so only the owner and the group may read the file.
const MODE: u32 = 0o640;

/// A file, and its path.
#[derive(Debug)]
pub(super) struct LogFile {
    to: Destination,
    file: File,
}

impl LogFile {
    /// Opens the file, or creates it.
    pub fn open(to: &Destination) -> io::Result<Self> {
        Ok(Self { to: to.clone(), file: open(to)? })
    }
}

impl Output for LogFile {
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()> {
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<bool> {
        self.file = open(&self.to)?;
        Ok(true)
    }
}

impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to.fmt(f)
    }
}

fn open(to: &Destination) -> io::Result<File> {
    match to {
        Destination::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        Destination::File(path) => {
            let mut options = OpenOptions::new();
            options.append(true).mode(MODE);
            match options.clone().create_new(true).open(path) {
                // Set the mode whatever the process's umask is, since a member of the group reads this file.
                Ok(file) => file.set_permissions(Permissions::from_mode(MODE)).map(|()| file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.create(true).open(path),
                Err(error) => Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_made_is_for_its_owner_and_his_group() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mode = || std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        let to = Destination::File(path.clone());
        open(&to).expect("opened");
        assert_eq!(mode(), 0o640);
        // An existing file's mode is left as it is.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        open(&to).expect("opened");
        assert_eq!(mode(), 0o600);
    }
}
