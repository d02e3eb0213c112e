//! A service manager as a service sees one: what it is told and by whom, and what it keeps.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use testkit::{until, wait_for};

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The process that sent it.
    pub by: u32,
    /// One line of the message.
    pub line: String,
}

/// Everything received so far, in order, and the descriptors that came with it.
#[derive(Debug, Default)]
struct Heard {
    told: Vec<Told>,
    kept: Vec<OwnedFd>,
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Manager {
    path: PathBuf,
    socket: UnixDatagram,
    heard: Arc<Mutex<Heard>>,
}

impl Manager {
    /// A manager that is notified through a socket in this directory.
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a directory");
        set_socket_passcred(&socket, true).expect("the kernel says who");
        let heard = Arc::<Mutex<Heard>>::default();
        // Read at once, so that nobody waits for room.
        thread::spawn({
            let (socket, heard) = (socket.try_clone().expect("a descriptor"), Arc::clone(&heard));
            move || while hear(&socket, &heard) {}
        });
        Self { path, socket, heard }
    }

    /// What a main process finds in its environment.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("NOTIFY_SOCKET", self.path.display().to_string()),
            ("WATCHDOG_USEC", "100000".to_owned()),
            ("FDSTORE", "64".to_owned()),
        ]
    }

    /// Everything it was told.
    pub fn told(&self) -> Vec<Told> {
        self.heard.lock().expect("nothing panics").told.clone()
    }

    /// How many descriptors it received.
    pub fn kept(&self) -> usize {
        self.heard.lock().expect("nothing panics").kept.len()
    }

    /// Waits until this process says this.
    #[track_caller]
    pub fn hears(&self, by: u32, line: &str) {
        let wanted = Told { by, line: line.to_owned() };
        until(line, || self.told().contains(&wanted));
    }

    /// Waits until this process says that another one is now the main process; returns which.
    #[track_caller]
    pub fn hears_of_the_next(&self, by: u32) -> u32 {
        wait_for("MAINPID=", || {
            let told = self.told();
            let next = told.iter().find_map(|told| Some((told.by, told.line.strip_prefix("MAINPID=")?)));
            next.map(|(from, next)| {
                assert_eq!(from, by, "{told:?}");
                next.parse().expect("a number")
            })
        })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Waits for one message; returns whether it arrived.
fn hear(socket: &UnixDatagram, heard: &Mutex<Heard>) -> bool {
    let mut text = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut text)];
    let Ok(received) = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) else { return false };
    let length = received.bytes;
    let mut heard = heard.lock().expect("nothing panics");
    let mut by = None;
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(fds) => heard.kept.extend(fds),
            RecvAncillaryMessage::ScmCredentials(who) => by = Some(who.pid.as_raw_nonzero().get() as u32),
            _ => {}
        }
    }
    let Some(by) = by else { return false };
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    heard.told.extend(text.lines().map(|line| Told { by, line: line.to_owned() }));
    true
}
