//! The record of an upload, stored next to its bytes, so that the upload can continue after a crash.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use data_encoding::HEXLOWER;
use rustix::fs::{self, Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::digest::common::hazmat::{SerializableState, SerializedState};
use sha2::{Digest, Sha256};

use super::tree::Error;

/// The longest record, in bytes. An escaped path takes up to three times its length.
const MOST_BYTES: u64 = 16 << 10;

/// An upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Its target path, escaped.
    pub(super) path: String,
    /// Its full length, in bytes.
    pub(super) length: u64,
    /// How many of its bytes are synced to disk.
    pub(super) offset: u64,
    /// The state of SHA-256 after these bytes, in hexadecimal digits.
    pub(super) state: String,
    /// The expected SHA-256 of the whole file, if the client sent one.
    pub(super) sha256: Option<String>,
    /// Whether it may replace a file.
    pub(super) replace: bool,
    /// Who uploads, for the log.
    pub(super) by: String,
    /// When it expires, in seconds since 1970.
    pub(super) expires: u64,
    /// Whether it has been moved to its path.
    pub(super) done: bool,
}

impl Record {
    /// The state of SHA-256 after the bytes that are on the disk.
    pub(super) fn hash(&self) -> Result<Sha256, Error> {
        if self.offset == 0 {
            return Ok(Sha256::new());
        }
        let failed = Error::Failed(rustix::io::Errno::BADMSG);
        let bytes = HEXLOWER.decode(self.state.as_bytes()).map_err(|_| failed)?;
        let state = SerializedState::<Sha256>::try_from(&bytes[..]).map_err(|_| failed)?;
        Sha256::deserialize(&state).map_err(|_| failed)
    }

    /// Records that the bytes up to `offset` are on the disk, and the state of their SHA-256.
    pub(super) fn advance(&mut self, offset: u64, hash: &Sha256) {
        (self.offset, self.state) = (offset, HEXLOWER.encode(&hash.serialize()));
    }

    /// Writes the record and syncs it.
    pub(super) fn save(&self, staging: &OwnedFd, id: &str) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|_| Error::Failed(rustix::io::Errno::BADMSG))?;
        let new = format!("{id}.new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(staging, &new, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(|error| io(&error))?;
        fs::renameat(staging, &new, staging, name(id))?;
        Ok(fs::fsync(staging)?)
    }

    /// Reads the record of an upload; none if it is missing or damaged.
    pub(super) fn load(staging: &OwnedFd, id: &str) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(fs::openat(staging, name(id), flags, Mode::empty()).ok()?);
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// The name of an upload's record.
pub(super) fn name(id: &str) -> String {
    format!("{id}.json")
}

/// The name of the file with an upload's bytes.
pub(super) fn data(id: &str) -> String {
    format!("{id}.data")
}

/// Converts an error of the disk.
pub(super) fn io(error: &std::io::Error) -> Error {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO).into()
}
