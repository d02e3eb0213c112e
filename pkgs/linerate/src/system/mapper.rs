//! Asks device-mapper about a device that dm-verity checks block by block: its root hash, and whether it is corrupt.
//!
//! The command and structures are from `include/uapi/linux/dm-ioctl.h`; the format of a table is in
//! `Documentation/admin-guide/device-mapper/verity.rst`.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

use super::Verity;

/// The device that takes requests, but only from root.
const CONTROL: &str = "/dev/mapper/control";
/// `DM_TABLE_STATUS`: `_IOWR(DM_IOCTL, 12, struct dm_ioctl)`.
const TABLE_STATUS: u32 = (3 << 30) | ((HEADER_BYTES as u32) << 16) | (0xfd << 8) | 12;
/// `DM_STATUS_TABLE_FLAG`: return the loaded table instead of the status.
const TABLE: u32 = 1 << 4;
/// `DM_BUFFER_FULL_FLAG`: the answer doesn't fit into the buffer.
const FULL: u32 = 1 << 8;
/// `struct dm_ioctl`.
const HEADER_BYTES: usize = 312;
/// `struct dm_target_spec`.
const TARGET_BYTES: usize = 40;
/// The offset of its type.
const TYPE_OFFSET: usize = 24;
/// `DM_NAME_LEN`, and the offset of the name.
const NAME_BYTES: usize = 128;
const NAME_OFFSET: usize = 48;
/// Enough for a table line with two devices, a hash and a salt.
const BUFFER_WORDS: usize = 4096 / 8;
/// The version of the interface; the kernel must have the same major version.
const VERSION: u32 = 4;

/// Asks about the device with this name.
pub fn verity(name: &str) -> io::Result<Verity> {
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let table = ask(name, TABLE)?;
    // Version, device, hash device, two sizes, blocks, the first hash, algorithm, and the root hash.
    let root = table.split(' ').nth(8).ok_or(io::ErrorKind::InvalidData)?.to_owned();
    Ok(Verity { root, corrupt: !ask(name, 0)?.starts_with('V') })
}

/// The table or status of a device that has one target, which must be verity.
fn ask(name: &str, flags: u32) -> io::Result<String> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    let mut buffer = [0_u64; BUFFER_WORDS];
    let mut header = [0_u8; HEADER_BYTES];
    let mut put = |offset: usize, bytes: &[u8]| header[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &VERSION.to_ne_bytes());
    put(12, &((BUFFER_WORDS * 8) as u32).to_ne_bytes());
    put(16, &(HEADER_BYTES as u32).to_ne_bytes());
    put(28, &flags.to_ne_bytes());
    put(NAME_OFFSET, name.as_bytes());
    for (word, bytes) in buffer.iter_mut().zip(header.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    // SAFETY: the file is open. The buffer lives through the call, is aligned as the structure requires, and is as long
    // as its data_size says; the kernel doesn't write beyond that.
    let done = unsafe { libc::ioctl(control.as_raw_fd(), TABLE_STATUS as _, buffer.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let number = |offset: usize| u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap_or_default());
    let (start, targets, flags) = (number(16) as usize, number(20), number(28));
    let target =
        bytes.get(start..).filter(|rest| rest.len() > TARGET_BYTES && targets == 1 && flags & FULL == 0);
    let target = target.ok_or(io::ErrorKind::InvalidData)?;
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    if text(&target[TYPE_OFFSET..TARGET_BYTES]) != "verity" {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not dm-verity's")));
    }
    Ok(text(&target[TARGET_BYTES..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_of_a_device_is_refused() {
        for name in ["", "a\0", "x".repeat(NAME_BYTES).as_str()] {
            assert_eq!(verity(name).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
        }
        assert!(verity("none-such").is_err());
    }
}
