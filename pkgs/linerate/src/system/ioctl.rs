//! Requests that ethtool's netlink doesn't have: a driver's own counters, how many queues the RSS table may name, and
//! setting that table (before Linux 6.17).
//!
//! The commands and structures are from `include/uapi/linux/ethtool.h`.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// `ETHTOOL_GSTRINGS`: the names of a string set.
const GET_STRINGS: u32 = 0x1b;
/// `ETHTOOL_GSTATS`: a driver's own counters.
const GET_STATISTICS: u32 = 0x1d;
/// `ETHTOOL_GRXRINGS`: how many queues the RSS table may name.
const GET_RINGS: u32 = 0x2d;
/// `ETHTOOL_GSSET_INFO`: how many names a string set has.
const GET_SET_INFO: u32 = 0x37;
/// `ETHTOOL_GRXFHINDIR`: the RSS table.
const GET_INDIRECTION: u32 = 0x38;
/// `ETHTOOL_SRXFHINDIR`: sets it.
const SET_INDIRECTION: u32 = 0x39;
/// `ETH_SS_STATS`: the string set of counters.
const STATISTICS_SET: u32 = 1;
/// `ETH_GSTRING_LEN`: the bytes of a name, including the zero at its end.
const NAME_BYTES: usize = 32;
/// More counters than any driver has: the largest drivers have dozens for each of 256 queues. The kernel writes all
/// counters even if it was given room for fewer, and each restart of a port may add some. The buffer therefore always
/// has room for this many. Pages that aren't written to cost nothing.
const MAX_COUNTERS: usize = 1 << 16;
/// Room for a `struct ethtool_rxnfc`, in words: it has 48.
const RXNFC_WORDS: usize = 64;
/// More entries than any RSS table has.
const MAX_ENTRIES: usize = 1 << 16;

/// An interface's own driver counters.
pub fn statistics(interface: &str) -> io::Result<BTreeMap<String, u64>> {
    let port = Port::open(interface)?;
    // struct ethtool_sset_info: cmd, reserved, a mask of 64 bits, and a count for each bit.
    let mut info = [GET_SET_INFO, 0, 1 << STATISTICS_SET, 0, 0];
    port.ask(&mut info)?;
    let count = if info[2] == 0 { 0 } else { info[4] as usize };
    if count == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if count > MAX_COUNTERS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // struct ethtool_gstrings: cmd, string_set, len, and the names.
    let mut names = vec![0_u32; 3 + MAX_COUNTERS * NAME_BYTES / 4];
    names[..3].copy_from_slice(&[GET_STRINGS, STATISTICS_SET, count as u32]);
    port.ask(&mut names)?;
    // struct ethtool_stats: cmd, n_stats, and 64 bits each.
    let mut values = vec![0_u32; 2 + MAX_COUNTERS * 2];
    values[..2].copy_from_slice(&[GET_STATISTICS, count as u32]);
    port.ask(&mut values)?;
    let bytes: Vec<u8> =
        names[3..3 + count * NAME_BYTES / 4].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let names = bytes.chunks_exact(NAME_BYTES).map(|name| {
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        String::from_utf8_lossy(&name[..end]).trim().to_owned()
    });
    let values = values[2..2 + count * 2].chunks_exact(2).map(|halves| {
        let halves = [halves[0].to_ne_bytes(), halves[1].to_ne_bytes()];
        u64::from_ne_bytes(halves.concat().try_into().unwrap_or_default())
    });
    Ok(names.zip(values).filter(|(name, _)| !name.is_empty()).collect())
}

/// The RSS table of an interface.
pub fn indirection(interface: &str) -> io::Result<Vec<u32>> {
    let port = Port::open(interface)?;
    let size = entries(&port)?;
    // struct ethtool_rxfh_indir: cmd, size, and the entries.
    let mut table = vec![0_u32; 2 + size];
    table[..2].copy_from_slice(&[GET_INDIRECTION, size as u32]);
    port.ask(&mut table)?;
    Ok(table.split_off(2))
}

/// Sets an interface's RSS table. Without entries, sets the default, which the kernel recomputes when channels change.
pub fn set_indirection(interface: &str, wanted: &[u32]) -> io::Result<()> {
    let port = Port::open(interface)?;
    if !wanted.is_empty() && wanted.len() != entries(&port)? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut table = vec![SET_INDIRECTION, wanted.len() as u32];
    table.extend(wanted);
    port.ask(&mut table)
}

/// How many queues of an interface its RSS table may name.
pub fn rss_rings(interface: &str) -> io::Result<u32> {
    // struct ethtool_rxnfc: cmd, flow_type, data of 64 bits, and a rule, which isn't used.
    let mut rings = [0; RXNFC_WORDS];
    rings[0] = GET_RINGS;
    Port::open(interface)?.ask(&mut rings)?;
    let halves = [rings[2].to_ne_bytes(), rings[3].to_ne_bytes()];
    let data = u64::from_ne_bytes(halves.concat().try_into().unwrap_or_default());
    u32::try_from(data).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The number of entries in the table. The kernel returns it when asked with a size of 0.
fn entries(port: &Port) -> io::Result<usize> {
    let mut size = [GET_INDIRECTION, 0];
    port.ask(&mut size)?;
    match size[1] as usize {
        0 => Err(io::ErrorKind::Unsupported.into()),
        size if size > MAX_ENTRIES => Err(io::ErrorKind::InvalidData.into()),
        size => Ok(size),
    }
}

/// A socket for requests about an interface.
struct Port {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Port {
    fn open(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        // The last byte stays zero, so a name of the full length doesn't fit.
        if interface.len() >= name.len() || interface.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(Self {
            socket: socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?,
            name,
        })
    }

    /// Passes a command, with room for its answer, to the driver. The counts in the command determine how much is
    /// written.
    fn ask(&self, words: &mut [u32]) -> io::Result<()> {
        // SAFETY: an ifreq of zeros is valid.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the socket is open, the request lives through the call, and its data points to `words`. Every caller
        // has made `words` long enough: for the counts in it, or for more counters than any driver has.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_of_an_interface_is_refused() {
        assert!(Port::open("an-interface-with-a-long-name").is_err());
        assert!(Port::open("eth\0").is_err());
        assert!(statistics("none-such").is_err());
    }

    #[test]
    fn loopback_has_neither_counters_nor_a_table() {
        for error in [statistics("lo").map(drop), indirection("lo").map(drop), rss_rings("lo").map(drop)] {
            assert_eq!(error.expect_err("none").kind(), io::ErrorKind::Unsupported);
        }
    }
}
