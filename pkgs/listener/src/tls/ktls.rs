//! TLS in the kernel: after a handshake in user space a socket is given its keys, and from then on carries plain
//! bytes to whoever reads and writes it, by sendfile(2) too (Documentation/networking/tls.rst).
//!
//! - [`Suites`]: what this kernel takes.
//! - [`attach`] and [`give_keys`]: how a connection is handed to it.
//! - [`receive`] and [`say_goodbye`]: what is different on such a socket.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, ServerConnection};

/// The upper layer protocol, as `TCP_ULP` names it.
const ULP: &std::ffi::CStr = c"tls";

/// Types of records (RFC 8446, section 5.1).
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;

/// The alert `close_notify`, which is a warning (RFC 8446, section 6).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Room for one control message of one byte, aligned as the kernel writes it.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    // SAFETY: a sum of sizes.
    bytes: [u8; unsafe { libc::CMSG_SPACE(1) } as usize],
}

/// Which cipher suites of TLS 1.3 this kernel encrypts, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suites {
    aes_128_gcm: bool,
    aes_256_gcm: bool,
    chacha20_poly1305: bool,
}

impl Suites {
    /// Asks the kernel, by a connection to itself for each; none where it has no such module loaded.
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

    /// Whether the kernel can go on with this connection. TLS 1.2 stays in user space: hardly any client is left
    /// that has no 1.3.
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

/// Puts the kernel's TLS on top of a connection; without keys it passes all bytes on as they are.
///
/// # Errors
/// Where the kernel has none, or its module is not loaded: only who may administer the network loads it by this.
pub fn attach(socket: impl AsFd) -> io::Result<()> {
    set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, ULP.to_bytes())
}

/// Gives the kernel the keys of a connection. Where this fails, the connection cannot go on.
///
/// # Errors
/// Where the kernel does not take them.
pub fn give_keys(socket: impl AsFd, secrets: &ExtractedSecrets) -> io::Result<()> {
    let of = |(sequence, secrets): &(u64, ConnectionTrafficSecrets)| Keys::of(secrets, *sequence);
    let (send, receive) = (of(&secrets.tx)?, of(&secrets.rx)?);
    send.give(&socket, libc::TLS_TX)?;
    receive.give(&socket, libc::TLS_RX)
}

/// Receives plain bytes, and says how many; none where the client has ended.
///
/// # Errors
/// As of recv(2), and `Unsupported` where the client says what is neither data nor the end, such as that it changes
/// its keys (RFC 8446, section 4.6.3): kernels before 6.14 cannot follow.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut bytes = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = message(&mut bytes, &mut control);
    // SAFETY: the descriptor is open while it is borrowed; `message` points to `buffer` and `control`, which live
    // on, with their own lengths.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let Ok(count) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has filled in `message`, so that a header it has is one within `control`; data of a message
    // of this kind is one byte.
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
        // A warning other than this one is not sent by any version that is left; an error ends it as well.
        Some(ALERT) => Ok(0),
        Some(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Tells the client that nothing more will come, so that it need not take the end for a cut (RFC 8446, section 6.1).
///
/// # Errors
/// As of send(2): `WouldBlock` where there is no room for it yet.
pub fn say_goodbye(socket: impl AsFd) -> io::Result<()> {
    let mut alert = CLOSE_NOTIFY;
    let mut control = MaybeUninit::<Control>::zeroed();
    let mut bytes = libc::iovec { iov_base: alert.as_mut_ptr().cast(), iov_len: alert.len() };
    let message = message(&mut bytes, &mut control);
    // SAFETY: `control` has room for a header with one byte behind it, which is all that is written, and is what
    // `message` points to. The descriptor is open while it is borrowed.
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

/// A message of these bytes, with room for a control message.
fn message(bytes: &mut libc::iovec, control: &mut MaybeUninit<Control>) -> libc::msghdr {
    // SAFETY: all of it are numbers and pointers, which may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: a sum of sizes.
    message.msg_controllen = unsafe { libc::CMSG_LEN(1) } as _;
    message
}

/// The keys of one direction, as the kernel has them (include/uapi/linux/tls.h).
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

    /// Gives them to the kernel, for `TLS_TX` or `TLS_RX`.
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

/// The kernel has the nonce of GCM in two pieces.
fn halves(nonce: &[u8; 12]) -> ([u8; 4], [u8; 8]) {
    let (mut salt, mut iv) = ([0; 4], [0; 8]);
    salt.copy_from_slice(&nonce[..4]);
    iv.copy_from_slice(&nonce[4..]);
    (salt, iv)
}

/// The bytes of one of the structures of [`Keys`].
fn bytes_of<T: Copy>(keys: &T) -> &[u8] {
    // SAFETY: these are arrays of bytes behind two numbers of two bytes, with no gap between them.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(keys).cast(), size_of::<T>()) }
}

fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed; the pointer is to `value`, and the length is its own.
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
        // Of include/uapi/linux/tls.h.
        assert_eq!(size_of::<libc::tls12_crypto_info_aes_gcm_128>(), 40);
        assert_eq!(size_of::<libc::tls12_crypto_info_aes_gcm_256>(), 56);
        assert_eq!(size_of::<libc::tls12_crypto_info_chacha20_poly1305>(), 56);
    }

    #[test]
    fn a_kernel_without_tls_is_no_error() {
        // Whatever this machine has, the two answers agree.
        let attaches = (|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            attach(TcpStream::connect(listener.local_addr()?)?)
        })();
        assert!(attaches.is_ok() || !Suites::probe().any());
    }
}
