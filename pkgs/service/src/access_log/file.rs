//! Lines at the end of a file, or on standard output.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use super::options::Destination;
use super::output::Output;

/// Lines are of clients, so they are for their owner and his group.
const MODE: u32 = 0o640;

/// A file, and where it is found.
#[derive(Debug)]
pub(super) struct LogFile {
    to: Destination,
    file: File,
}

impl LogFile {
    /// Opens it, or makes it.
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
        Destination::File(path) => OpenOptions::new().append(true).create(true).mode(MODE).open(path),
    }
}
