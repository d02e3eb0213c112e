//! TLS in the kernel: after a handshake in user space, a socket gets its keys. From then on, programs read and write
//! plain bytes on it, also with sendfile(2) (Documentation/networking/tls.rst).
//!
//! - [`Suites`]: what this kernel supports.
//! - [`attach`] and [`give_keys`]: hand a connection to it.
//! - [`receive`] and [`say_goodbye`]: what is different on such a socket.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, ServerConnection};

/// The name of the upper layer protocol for `TCP_ULP`.
const ULP: &std::ffi::CStr = c"tls";

/// Record types (RFC 8446, section 5.1).
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;

/// The alert `close_notify`, which is a warning (RFC 8446, section 6).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Space for one control message of one byte, with the kernel's alignment.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    // SAFETY: a sum of sizes.
    bytes: [u8; unsafe { libc::CMSG_SPACE(1) } as usize],
}

/// The TLS 1.3 cipher suites that this kernel encrypts in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suites {
    aes_128_gcm: bool,
    aes_256_gcm: bool,
    chacha20_poly1305: bool,
}

impl Suites {
    /// Asks the kernel, with a loopback connection for each. None if its module is not loaded.
    pub fn probe() -> Self {
        let takes = |info: Keys| probe(&info).is_ok();
        Self {
            aes_128_gcm: takes(Keys::aes_128_gcm(&[0; 16], &[0; 12], 0)),
            aes_256_gcm: takes(Keys::aes_256_gcm(&[0; 32], &[0; 12], 0)),
            chacha20_poly1305: takes(Keys::chacha20_poly1305(&[0; 32], &[0; 12], 0)),
        }
    }

    /// Whether there are any.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Whether the kernel can continue this connection. TLS 1.2 stays in user space, since hardly any client lacks 1.3.
    pub fn has(self, connection: &ServerConnection) -> bool {
        use rustls::CipherSuite::{
            TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
        };
        connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
            && match connection.negotiated_cipher_suite().map(|suite| suite.suite()) {
                Some(TLS13_AES_128_GCM_SHA256) => self.aes_128_gcm,
                Some(TLS13_AES_256_GCM_SHA384) => self.aes_256_gcm,
                Some(TLS13_CHACHA20_POLY1305_SHA256) => self.chacha20_poly1305,
                _ => false,
            }
    }
}

fn probe(keys: &Keys) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    attach(&client)?;
    keys.give(&client, libc::TLS_TX)?;
    keys.give(&client, libc::TLS_RX)
}

/// Adds the kernel's TLS to a connection. Without keys, it passes all bytes unchanged.
///
/// # Errors
/// If the kernel has no TLS, or its module is not loaded. Only a network administrator's call loads it.
pub fn attach(socket: impl AsFd) -> io::Result<()> {
    set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, ULP.to_bytes())
}

/// Gives the kernel the keys of a connection. If this fails, the connection cannot continue.
///
/// # Errors
/// If the kernel refuses them.
pub fn give_keys(socket: impl AsFd, secrets: &ExtractedSecrets) -> io::Result<()> {
    let of = |(sequence, secrets): &(u64, ConnectionTrafficSecrets)| Keys::of(secrets, *sequence);
    let (send, receive) = (of(&secrets.tx)?, of(&secrets.rx)?);
    send.give(&socket, libc::TLS_TX)?;
    receive.give(&socket, libc::TLS_RX)
}

/// Receives plain bytes. Returns how many; zero if the client has ended.
///
/// # Errors
/// Those of recv(2). `Unsupported` if the client sends a record that is neither data nor the end, such as a change of
/// its keys (RFC 8446, section 4.6.3), which kernels before 6.14 cannot follow.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut bytes = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = message(&mut bytes, &mut control);
    // SAFETY: the descriptor is open while borrowed; `message` points to `buffer` and `control`, which outlive the
    // call, with their own lengths.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let Ok(count) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has filled in `message`, so a header in it lies within `control`; the data of such a message
    // is one byte.
    let kind = unsafe {
        libc::CMSG_FIRSTHDR(&raw const message)
            .as_ref()
            .filter(|header| {
                (header.cmsg_level, header.cmsg_type) == (libc::SOL_TLS, libc::TLS_GET_RECORD_TYPE)
            })
            .map(|header| libc::CMSG_DATA(header).read())
    };
    match kind {
        None | Some(APPLICATION_DATA) => Ok(count),
        // No current version sends another warning, and an error ends the connection as well.
        Some(ALERT) => Ok(0),
        Some(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Tells the client that nothing more will come, so that the end cannot be taken for a truncation (RFC 8446, section
/// 6.1).
///
/// # Errors
/// Those of send(2): `WouldBlock` if there is no room yet.
pub fn say_goodbye(socket: impl AsFd) -> io::Result<()> {
    let mut alert = CLOSE_NOTIFY;
    let mut control = MaybeUninit::<Control>::zeroed();
    let mut bytes = libc::iovec { iov_base: alert.as_mut_ptr().cast(), iov_len: alert.len() };
    let message = message(&mut bytes, &mut control);
    // SAFETY: `control` has space for a header and one byte, which is all that is written, and `message` points to it.
    // The descriptor is open while borrowed.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        libc::CMSG_DATA(header).write(ALERT);
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A message of these bytes, with space for a control message.
fn message(bytes: &mut libc::iovec, control: &mut MaybeUninit<Control>) -> libc::msghdr {
    // SAFETY: the struct has only numbers and pointers, which may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: a sum of sizes.
    message.msg_controllen = unsafe { libc::CMSG_LEN(1) } as _;
    message
}

/// The keys of one direction, in the kernel's structs (include/uapi/linux/tls.h).
enum Keys {
    Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128),
    Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256),
    Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305),
}

impl Keys {
    fn of(secrets: &ConnectionTrafficSecrets, sequence: u64) -> io::Result<Self> {
        use ConnectionTrafficSecrets as Secrets;
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
        Ok(match secrets {
            Secrets::Aes128Gcm { key, iv } => {
                Self::aes_128_gcm(key.as_ref().try_into().map_err(wrong)?, nonce(iv)?, sequence)
            }
            Secrets::Aes256Gcm { key, iv } => {
                Self::aes_256_gcm(key.as_ref().try_into().map_err(wrong)?, nonce(iv)?, sequence)
            }
            Secrets::Chacha20Poly1305 { key, iv } => {
                Self::chacha20_poly1305(key.as_ref().try_into().map_err(wrong)?, nonce(iv)?, sequence)
            }
            _ => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    fn aes_128_gcm(key: &[u8; 16], nonce: &[u8; 12], sequence: u64) -> Self {
        let (salt, iv) = halves(nonce);
        let info = info(libc::TLS_CIPHER_AES_GCM_128);
        let rec_seq = sequence.to_be_bytes();
        Self::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 { info, iv, key: *key, salt, rec_seq })
    }

    fn aes_256_gcm(key: &[u8; 32], nonce: &[u8; 12], sequence: u64) -> Self {
        let (salt, iv) = halves(nonce);
        let info = info(libc::TLS_CIPHER_AES_GCM_256);
        let rec_seq = sequence.to_be_bytes();
        Self::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 { info, iv, key: *key, salt, rec_seq })
    }

    fn chacha20_poly1305(key: &[u8; 32], nonce: &[u8; 12], sequence: u64) -> Self {
        let info = info(libc::TLS_CIPHER_CHACHA20_POLY1305);
        let rec_seq = sequence.to_be_bytes();
        Self::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
            info,
            iv: *nonce,
            key: *key,
            salt: [],
            rec_seq,
        })
    }

    /// Gives them to the kernel, as `TLS_TX` or `TLS_RX`.
    fn give(&self, socket: impl AsFd, direction: i32) -> io::Result<()> {
        let socket = socket.as_fd();
        match self {
            Self::Aes128Gcm(keys) => set(socket, libc::SOL_TLS, direction, bytes_of(keys)),
            Self::Aes256Gcm(keys) => set(socket, libc::SOL_TLS, direction, bytes_of(keys)),
            Self::Chacha20Poly1305(keys) => set(socket, libc::SOL_TLS, direction, bytes_of(keys)),
        }
    }
}

fn info(cipher: u16) -> libc::tls_crypto_info {
    libc::tls_crypto_info { version: libc::TLS_1_3_VERSION, cipher_type: cipher }
}

fn nonce(iv: &rustls::crypto::cipher::Iv) -> io::Result<&[u8; 12]> {
    iv.as_ref().try_into().map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The kernel stores GCM's nonce in two parts.
fn halves(nonce: &[u8; 12]) -> ([u8; 4], [u8; 8]) {
    let (mut salt, mut iv) = ([0; 4], [0; 8]);
    salt.copy_from_slice(&nonce[..4]);
    iv.copy_from_slice(&nonce[4..]);
    (salt, iv)
}

/// The bytes of one of the structs of [`Keys`].
fn bytes_of<T: Copy>(keys: &T) -> &[u8] {
    // SAFETY: the structs are byte arrays after two 2-byte numbers, without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(keys).cast(), size_of::<T>()) }
}

fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed; the pointer is to `value`, with its own length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_sizes_the_kernel_asks_for() {
        // Sizes in include/uapi/linux/tls.h.
        assert_eq!(size_of::<libc::tls12_crypto_info_aes_gcm_128>(), 40);
        assert_eq!(size_of::<libc::tls12_crypto_info_aes_gcm_256>(), 56);
        assert_eq!(size_of::<libc::tls12_crypto_info_chacha20_poly1305>(), 56);
    }

    #[test]
    fn a_kernel_without_tls_is_no_error() {
        // Whatever this machine supports, both answers agree.
        let attaches = (|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            attach(TcpStream::connect(listener.local_addr()?)?)
        })();
        assert!(attaches.is_ok() || !Suites::probe().any());
    }
}
