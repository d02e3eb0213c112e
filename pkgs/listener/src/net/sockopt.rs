//! Kernel settings of listening sockets. On Linux, accepted connections inherit all of them, so they cost a connection
//! no system call.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;

use rustix::net::sockopt::{set_socket_incoming_cpu, set_tcp_congestion};
use socket2::{SockRef, TcpKeepalive};

use crate::config::Tcp;

/// Applies all settings of `tcp`, and the CPU whose connections the socket prefers.
///
/// # Errors
/// The first setting that the kernel refuses, such as an unknown congestion control.
pub fn apply(listener: &TcpListener, tcp: &Tcp, cpu: Option<u32>) -> io::Result<()> {
    let socket = SockRef::from(listener);
    if let Some(idle) = tcp.keep_alive {
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle))?;
    }
    if let Some(bytes) = tcp.not_sent_low_water {
        socket.set_tcp_notsent_lowat(bytes)?;
    }
    if let Some(name) = &tcp.congestion_control {
        set_tcp_congestion(listener, name)?;
    }
    if let Some(queue) = tcp.fast_open {
        set(listener, libc::TCP_FASTOPEN, i32::try_from(queue).unwrap_or(i32::MAX))?;
    }
    if let Some(time) = tcp.defer_accept {
        set(listener, libc::TCP_DEFER_ACCEPT, i32::try_from(time.as_secs().max(1)).unwrap_or(i32::MAX))?;
    }
    if let Some(cpu) = cpu {
        set_socket_incoming_cpu(listener, cpu)?;
    }
    Ok(())
}

/// Sets an option that neither rustix nor socket2 supports.
#[allow(unsafe_code)]
fn set(listener: &TcpListener, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open while `listener` is borrowed; the pointer is to an int, as tcp(7) requires, and
    // the length is the int's.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use rustix::net::sockopt::{socket_incoming_cpu, tcp_congestion};

    use super::*;

    #[test]
    fn connections_inherit_what_the_listener_was_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let tcp = Tcp {
            keep_alive: Some(Duration::from_secs(77)),
            not_sent_low_water: Some(65_536),
            congestion_control: Some("reno".into()),
            fast_open: Some(16),
            defer_accept: Some(Duration::from_secs(1)),
            ..Tcp::default()
        };
        apply(&listener, &tcp, Some(0)).expect("all of it is known");
        assert_eq!(socket_incoming_cpu(&listener).expect("set"), 0);
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connects");
        client.write_all(b"x").expect("sends, without which nothing is accepted");
        let (mut accepted, _) = listener.accept().expect("accepted");
        accepted.read_exact(&mut [0]).expect("receives");
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().expect("told"));
        assert_eq!(socket.tcp_keepalive_time().expect("told"), Duration::from_secs(77));
        assert_eq!(socket.tcp_notsent_lowat().expect("told"), 65_536);
        assert_eq!(tcp_congestion(&accepted).expect("told"), "reno");
    }

    #[test]
    fn a_congestion_control_the_kernel_has_not_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let tcp = Tcp { congestion_control: Some("no-such".into()), ..Tcp::default() };
        assert!(apply(&listener, &tcp, None).is_err());
    }
}
