//! Crowds of clients that keep a server busy.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::narrow;
use crate::conversation::Socket;
use crate::secure::{Either, Secure};

/// The most that a greedy client sends, in bytes.
const GREED: usize = 64 << 20;

/// A server that takes nothing for this long counts as having stopped reading.
const FULL: Duration = Duration::from_millis(300);

/// How clients behave.
#[derive(Clone, Debug)]
pub enum Habit {
    /// They connect and send nothing, not even a TLS handshake.
    Mute,
    /// They complete the TLS handshake, if there is TLS, and send nothing more.
    Silent,
    /// They send this one byte at a time, and then its last byte again and again.
    Drip(Vec<u8>),
    /// They send this and wait.
    Half(Vec<u8>),
    /// They send this again and again until the server accepts no more, and read nothing.
    Greedy(Vec<u8>),
    /// They send this once and read nothing.
    Deaf(Vec<u8>),
}

/// Clients of a crowd, with any protocol.
pub trait Members {
    /// Their name in messages of failed tests.
    fn name(&self) -> &'static str;

    /// Lets clients that drip send one more byte.
    fn drip(&mut self);

    /// How many connections the server hasn't closed yet, as far as the clients can tell.
    fn left(&mut self) -> usize;
}

/// Clients with the same habit. They disconnect when this is dropped.
#[derive(Debug)]
pub struct Crowd {
    name: &'static str,
    habit: Habit,
    members: Vec<Either>,
    said: usize,
}

/// Where clients connect to.
#[derive(Clone, Debug)]
pub struct Door {
    /// Its address.
    pub address: SocketAddr,
    /// How to speak TLS, if it is used.
    pub secure: Option<Secure>,
}

impl Door {
    /// Opens a connection.
    ///
    /// # Errors
    /// When that fails.
    pub fn connect(&self) -> io::Result<Either> {
        self.over(TcpStream::connect(self.address)?)
    }

    fn over(&self, stream: TcpStream) -> io::Result<Either> {
        stream.set_nodelay(true)?;
        Ok(match &self.secure {
            None => Either::Plain(stream),
            Some(secure) => Either::Secure(Box::new(secure.shake(stream)?)),
        })
    }

    /// Connects this many clients with a habit.
    ///
    /// # Errors
    /// When they can't connect.
    pub fn crowd(&self, name: &'static str, habit: Habit, count: usize) -> io::Result<Crowd> {
        let member = |_| {
            let mut member = match &habit {
                Habit::Mute => Either::Plain(TcpStream::connect(self.address)?),
                Habit::Greedy(_) | Habit::Deaf(_) => self.over(narrow(self.address)?)?,
                _ => self.connect()?,
            };
            match &habit {
                Habit::Half(bytes) | Habit::Deaf(bytes) => {
                    member.write_all(bytes)?;
                    member.flush()?;
                }
                Habit::Greedy(bytes) => gorge(&mut member, bytes)?,
                Habit::Mute | Habit::Silent | Habit::Drip(_) => {}
            }
            member.tcp().set_nonblocking(true)?;
            Ok(member)
        };
        let members = (0..count).map(member).collect::<io::Result<_>>()?;
        Ok(Crowd { name, habit, members, said: 0 })
    }
}

/// Sends the same bytes again and again until the server accepts no more.
fn gorge(member: &mut Either, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    match member {
        // A session that blocks in the middle of a record continues later.
        Either::Secure(stream) => {
            stream.sock.set_nonblocking(true)?;
            let mut last = Instant::now();
            while sent < GREED && last.elapsed() < FULL {
                if !stream.conn.wants_write() {
                    sent += stream.conn.writer().write(bytes)?;
                }
                match stream.conn.write_tls(&mut stream.sock) {
                    Ok(_) => last = Instant::now(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(5))
                    }
                    Err(_) => break,
                }
            }
        }
        Either::Plain(stream) => {
            stream.set_write_timeout(Some(FULL))?;
            let many = bytes.repeat((64 << 10) / bytes.len() + 1);
            while sent < GREED {
                match stream.write(&many) {
                    Ok(count) => sent += count,
                    Err(_) => break,
                }
            }
        }
    }
    Ok(())
}

impl Members for Crowd {
    fn name(&self) -> &'static str {
        self.name
    }

    fn drip(&mut self) {
        let Habit::Drip(bytes) = &self.habit else { return };
        let byte = bytes[self.said.min(bytes.len() - 1)];
        self.said += 1;
        for member in &mut self.members {
            let _ = member.write_all(&[byte]).and_then(|()| member.flush());
        }
    }

    /// Clients that read nothing can't tell.
    fn left(&mut self) -> usize {
        if matches!(self.habit, Habit::Greedy(_) | Habit::Deaf(_)) {
            return 0;
        }
        let mut buffer = [0; 4096];
        self.members.retain_mut(|member| {
            loop {
                match member.read(&mut buffer) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Ok(0) | Err(_) => return false,
                }
            }
        });
        self.members.len()
    }
}

impl Crowd {
    /// How many clients there are, whether their connections have ended or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
