//! Parses the header with which a proxy tells the client of a connection: version 2 of the PROXY protocol (HAProxy's
//! `proxy-protocol.txt`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The start of each header (section 2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The length of signature, version and command, family, and length.
const FIXED_BYTES: usize = 16;

/// The most bytes after the fixed part: addresses, and what proxies add, such as a client's certificate.
const MOST_BYTES: usize = 4096;

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The proxy itself, such as a health check; or a family without addresses here.
    Local,
    /// A client's.
    Proxied {
        /// The client's address.
        remote: SocketAddr,
        /// The address that it connected to.
        local: SocketAddr,
    },
}

/// Why a connection has no valid header.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("the connection ended within the PROXY header")]
    Read(#[from] std::io::Error),
    /// It starts with something else.
    #[error("the connection begins with no PROXY header of version 2")]
    Malformed,
    /// The header is longer than any use requires.
    #[error("the PROXY header is longer than {MOST_BYTES} bytes")]
    TooLong,
}

/// Reads the header at the start of a connection, and nothing after it.
///
/// # Errors
/// When there is no valid one.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Header, Error> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let length = length(&fixed)?;
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    parse(&fixed, &rest)
}

/// The most bytes of a header.
pub const MAX_BYTES: usize = FIXED_BYTES + MOST_BYTES;

/// Reads the header at the start of `bytes`. Returns it with its length, or none if it is incomplete. For loops that
/// read by themselves into a buffer of [`MAX_BYTES`].
///
/// # Errors
/// When they start with something else, as soon as that shows.
pub fn take(bytes: &[u8]) -> Result<Option<(Header, usize)>, Error> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes[..known] != SIGNATURE[..known] {
        return Err(Error::Malformed);
    }
    let Some((fixed, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = length(fixed)?;
    let Some(rest) = rest.get(..length) else { return Ok(None) };
    Ok(Some((parse(fixed, rest)?, FIXED_BYTES + length)))
}

/// How many bytes follow the fixed part.
pub fn length(fixed: &[u8; FIXED_BYTES]) -> Result<usize, Error> {
    // The upper half of byte 13 is the version.
    if fixed[..12] != SIGNATURE || fixed[12] >> 4 != 2 {
        return Err(Error::Malformed);
    }
    match usize::from(u16::from_be_bytes([fixed[14], fixed[15]])) {
        length if length > MOST_BYTES => Err(Error::TooLong),
        length => Ok(length),
    }
}

/// Parses a whole header; `rest` is everything after the fixed part.
pub fn parse(fixed: &[u8; FIXED_BYTES], rest: &[u8]) -> Result<Header, Error> {
    match fixed[12] & 0xf {
        // Its addresses, if any, mean nothing.
        0 => return Ok(Header::Local),
        1 => {}
        _ => return Err(Error::Malformed),
    }
    match fixed[13] {
        // TCP over IPv4 or IPv6: both addresses, then both ports. Extensions follow and are skipped.
        0x11 => addresses(rest, |bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes))),
        0x21 => addresses(rest, |bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes))),
        // Unspecified addresses, and Unix sockets.
        0x00 | 0x31 => Ok(Header::Local),
        _ => Err(Error::Malformed),
    }
}

fn addresses<const N: usize>(rest: &[u8], ip: impl Fn([u8; N]) -> IpAddr) -> Result<Header, Error> {
    let (remote, rest) = rest.split_first_chunk().ok_or(Error::Malformed)?;
    let (local, rest) = rest.split_first_chunk().ok_or(Error::Malformed)?;
    let (ports, _) = rest.split_first_chunk::<4>().ok_or(Error::Malformed)?;
    Ok(Header::Proxied {
        remote: SocketAddr::new(ip(*remote), u16::from_be_bytes([ports[0], ports[1]])),
        local: SocketAddr::new(ip(*local), u16::from_be_bytes([ports[2], ports[3]])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    async fn read_all(bytes: &[u8]) -> (Result<Header, Error>, usize) {
        let mut stream = bytes;
        let header = read(&mut stream).await;
        // Both ways to read a header give the same.
        match (&header, take(bytes)) {
            (Ok(header), taken) => {
                assert_eq!(taken.ok().flatten(), Some((*header, bytes.len() - stream.len())));
                for end in 0..bytes.len() - stream.len() {
                    assert!(matches!(take(&bytes[..end]), Ok(None)), "{end} of {bytes:?}");
                }
            }
            (Err(Error::Read(_)), taken) => {
                assert!(matches!(taken, Ok(None) | Err(Error::Malformed)), "{bytes:?}")
            }
            (Err(_), taken) => assert!(taken.is_err(), "{bytes:?}"),
        }
        (header, stream.len())
    }

    #[tokio::test]
    async fn the_clients_address_is_told() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0, 80];
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
        let extended = [&v4[..], &[4, 0, 1, 9]].concat();
        let proxied = |remote: &str, local: &str| Header::Proxied {
            remote: remote.parse().expect("an address"),
            local: local.parse().expect("an address"),
        };
        for (command, family, rest, expected) in [
            (0x21, 0x11, &v4[..], proxied("192.0.2.1:12345", "198.51.100.2:80")),
            (0x21, 0x11, &extended, proxied("192.0.2.1:12345", "198.51.100.2:80")),
            (0x21, 0x21, &v6, proxied("[::1]:3", "[::2]:4")),
            (0x21, 0x31, &[0; 216], Header::Local),
            (0x21, 0x00, &[], Header::Local),
            (0x20, 0x11, &v4, Header::Local),
            (0x20, 0x00, &[], Header::Local),
        ] {
            let bytes = [&header(command, family, rest)[..], b"GET"].concat();
            let (found, left) = read_all(&bytes).await;
            assert_eq!((found.expect("a header"), left), (expected, 3), "{command:x} {family:x}");
        }
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        for bytes in [
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n".to_vec(),
            header(0x11, 0x11, &[0; 12]),
            header(0x22, 0x11, &[0; 12]),
            header(0x21, 0x11, &[0; 11]),
            header(0x21, 0x21, &[0; 35]),
            header(0x21, 0x12, &[0; 12]),
            header(0x21, 0x11, &[0; MOST_BYTES + 1]),
            header(0x21, 0x11, &[0; 12])[..20].to_vec(),
            Vec::new(),
        ] {
            assert!(read_all(&bytes).await.0.is_err(), "{bytes:?}");
        }
    }
}
