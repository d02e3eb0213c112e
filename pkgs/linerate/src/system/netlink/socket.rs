//! A netlink socket: sends requests, and receives answers and notifications.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::SocketAddr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::message::{Attributes, HEADER, Message, Messages, Writer, u32_at};

/// `NLM_F_REQUEST`: a request.
const REQUEST: u16 = 0x01;
/// `NLM_F_ACK`: asks for a confirmation.
const ACKNOWLEDGE: u16 = 0x04;
/// `NLM_F_DUMP_INTR`, in an answer: the data changed during the dump.
const INTERRUPTED: u16 = 0x10;
/// `NLM_F_CAPPED`, in an error: it contains only the header of the refused request.
const CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`, in an error: it contains attributes.
const EXTENDED: u16 = 0x200;
/// `NLM_F_DUMP`: asks for everything.
const DUMP: u16 = 0x300;
/// `NLMSG_ERROR`: an errno, or 0 for "done".
const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump, and an errno.
const DONE: u16 = 3;
/// `NLMSGERR_ATTR_MSG`: the reason as text.
const WORDS: u16 = 1;

/// How long the kernel may take to answer. Setting channels restarts a port.
const PATIENCE: Duration = Duration::from_secs(30);
/// More bytes than a datagram can have: the kernel fills at most 32 KiB (`netlink_dump` in `net/netlink/af_netlink.c`).
const DATAGRAM: usize = 64 * 1024;
/// The longest answer, in bytes; a million sockets fit into it.
const ANSWER: usize = 128 * 1024 * 1024;
/// How often a dump is requested while its data keeps changing.
const ATTEMPTS: usize = 4;

/// A socket of one netlink protocol.
#[derive(Debug)]
pub struct Socket {
    socket: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The kernel's error for a request, with its reason.
#[derive(Debug, thiserror::Error)]
#[error("{words} ({errno})")]
struct Refused {
    words: String,
    errno: io::Error,
}

impl Socket {
    /// Opens a socket.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        // Asks for error messages as text. Before Linux 4.12 there are none.
        let _ = socket.set_ext_ack(true);
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(DATAGRAM) })
    }

    /// Starts listening to a group.
    pub fn join(&self, group: u32) -> io::Result<()> {
        self.socket.add_membership(group)
    }

    /// Sends a request, and calls `each` with each message of the answer.
    pub fn ask(
        &mut self,
        kind: u16,
        header: &[u8],
        write: impl FnOnce(Writer) -> Writer,
        each: impl FnMut(&Message<'_>),
    ) -> io::Result<()> {
        let question = write(Writer::new(kind, REQUEST | ACKNOWLEDGE, header));
        self.answered(question, each).map(drop)
    }

    /// Requests a dump, and collects the values that `each` returns for the messages of the answer.
    pub fn all<T>(
        &mut self,
        kind: u16,
        header: &[u8],
        mut each: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..ATTEMPTS {
            let mut all = Vec::new();
            let question = Writer::new(kind, REQUEST | DUMP, header);
            if self.answered(question, |message| all.extend(each(message)))? {
                return Ok(all);
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "the kernel's answer changed as it was told"))
    }

    /// Sends a request and calls `each` with every message of the answer. Returns whether the data stayed the same
    /// meanwhile.
    fn answered(&mut self, question: Writer, mut each: impl FnMut(&Message<'_>)) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send_to(&question.finish(self.sequence), &SocketAddr::new(0, 0), 0)?;
        let deadline = Instant::now() + PATIENCE;
        let (mut whole, mut bytes) = (true, 0);
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if !readable([self.as_fd()], rest)?[0] {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let sequence = self.sequence;
            let Some(datagram) = self.receive()? else { continue };
            bytes += datagram.len();
            if bytes > ANSWER {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer has no end"));
            }
            for message in Messages(datagram).filter(|message| message.sequence == sequence) {
                whole &= message.flags & INTERRUPTED == 0;
                match message.kind {
                    ERROR | DONE => return verdict(&message).map(|()| whole),
                    _ => each(&message),
                }
            }
        }
    }

    /// The next datagram if one from the kernel has arrived. Doesn't wait.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.clear();
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        match self.socket.recv_from(&mut self.buffer, flags) {
            Ok((length, _)) if length > self.buffer.len() => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a datagram of the kernel's is too long"))
            }
            Ok((_, from)) => Ok((from.port_number() == 0).then_some(&self.buffer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until at least one of the sockets is readable, up to a timeout. Returns which ones are.
pub fn readable<const N: usize>(sockets: [BorrowedFd<'_>; N], patience: Duration) -> io::Result<[bool; N]> {
    let deadline = Instant::now() + patience;
    loop {
        let mut asked = sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN));
        let rest = deadline.saturating_duration_since(Instant::now());
        let rest = Timespec::try_from(rest).map_err(io::Error::other)?;
        match poll(&mut asked, Some(&rest)) {
            // A failed socket is read too; reading returns the error.
            Ok(_) => return Ok(asked.map(|one| !one.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The result that the last message of an answer reports.
fn verdict(message: &Message<'_>) -> io::Result<()> {
    let errno = u32_at(message.payload, 0).map_or(0, u32::cast_signed);
    if errno == 0 {
        return Ok(());
    }
    let refused = io::Error::from_raw_os_error(errno.wrapping_neg());
    // struct nlmsgerr contains the errno, and the request or its header. At the end of a dump, there is only the errno.
    let question = match (message.kind, message.flags & CAPPED) {
        (DONE, _) => 0,
        (_, 0) => u32_at(message.payload, 4).map_or(HEADER, |length| length as usize),
        _ => HEADER,
    };
    let words = if message.flags & EXTENDED == 0 {
        None
    } else {
        let attributes: Attributes<'_> =
            message.attributes(4_usize.saturating_add(question.next_multiple_of(4)));
        attributes.text(WORDS)
    };
    match words {
        Some(words) => Err(io::Error::new(refused.kind(), Refused { words, errno: refused })),
        None => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last message of an answer, with an errno, a request's bytes and optionally a reason.
    fn last(kind: u16, flags: u16, errno: i32, question: &[u8], words: Option<&str>) -> Vec<u8> {
        let header = [&errno.to_ne_bytes(), question].concat();
        let written = Writer::new(kind, flags, &header);
        match words {
            Some(words) => written.text(WORDS, words),
            None => written,
        }
        .finish(1)
    }

    #[test]
    fn the_last_message_tells_whether_it_is_done_and_if_not_why() {
        let question = Writer::new(20, 0, &[1, 1, 0, 0]).u32(9, 5).finish(1);
        let header = &question[..HEADER];
        let words = Some("more channels than there are");
        type Case<'a> = (u16, u16, i32, &'a [u8], Option<&'a str>, Option<(i32, &'a str)>);
        let cases: [Case<'_>; 6] = [
            (ERROR, CAPPED, 0, header, None, None),
            (DONE, 0, 0, &[], None, None),
            (DONE, 0, -libc::ENODEV, &[], None, Some((libc::ENODEV, "No such device"))),
            (ERROR, 0, -libc::EOPNOTSUPP, &question, None, Some((libc::EOPNOTSUPP, "not supported"))),
            (ERROR, EXTENDED, -libc::EINVAL, &question, words, Some((libc::EINVAL, "more channels"))),
            (ERROR, EXTENDED | CAPPED, -libc::EINVAL, header, words, Some((libc::EINVAL, "more channels"))),
        ];
        for (kind, flags, errno, question, words, expected) in cases {
            let bytes = last(kind, flags, errno, question, words);
            let message = Messages(&bytes).next().expect("a message");
            match (verdict(&message), expected) {
                (Ok(()), None) => {}
                (Err(error), Some((errno, says))) => {
                    assert_eq!(error.kind(), io::Error::from_raw_os_error(errno).kind(), "{error}");
                    assert!(error.to_string().contains(says), "{error}");
                }
                (told, expected) => panic!("{told:?} and not {expected:?}"),
            }
        }
    }

    #[test]
    fn an_error_that_is_cut_off_is_one_all_the_same() {
        let whole = last(ERROR, EXTENDED, -libc::EINVAL, &[0xff; HEADER], Some("words"));
        for length in HEADER + 4..whole.len() {
            let payload = &whole[HEADER..length];
            let message = Message { kind: ERROR, flags: EXTENDED, sequence: 1, payload };
            verdict(&message).expect_err("an error");
        }
    }
}
