//! HTTP/3 clients (RFC 9114) that send the frames they are given, and don't compress headers (which RFC 9204 permits):
//! a visitor, and crowds.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connecting, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt,
};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::TLS13;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::crowd::Members;
use crate::program::PATIENCE;

const DATA: u64 = 0;
const HEADERS: u64 = 1;
const SETTINGS: u64 = 4;

/// The type of the control stream, which carries settings.
const CONTROL: u64 = 0;

/// Streams of an unknown type, and a byte that is sent on each; fewer streams than any server has to permit.
pub const UNKNOWN: &[(u64, u8)] = &[(0x21, 0), (0x21, 0)];

/// QPACK's streams, and the instruction on each that needs no dynamic table (RFC 9204, sections 4.3.1 and 4.4.2).
pub const QPACK: &[(u64, u8)] = &[(2, 0x20), (3, 0x40)];

const NO_ERROR: VarInt = VarInt::from_u32(0x100);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10C);

/// How much a crowd's member lets a server send on a stream, and on all of them: enough for settings and the head of an
/// answer.
const GRANTED: u32 = 1024;
const GRANTED_IN_ALL: u32 = 64 * 1024;

/// How often members of a crowd send a keep-alive, so that a server can't think they are gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// How many bytes are sent at a time on streams that are filled.
const PIECE: usize = 64 << 10;

/// How many requests are cancelled at a time, and how long after they were sent.
const TOGETHER: usize = 50;
const UNDER_WAY: Duration = Duration::from_millis(10);

/// The most that a member sends on each of these streams, in bytes: more than a server has room for.
const GREED: usize = 8 << 20;

/// A server that accepts nothing for this long won't accept more.
const FULL: Duration = Duration::from_millis(300);

/// The largest answer to a visitor, in bytes.
const ANSWER: usize = 1 << 20;

/// Appends a variable-length integer (RFC 9000, section 16).
fn integer(bytes: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => bytes.push(value as u8),
        0x40..0x4000 => bytes.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        _ => {
            bytes.extend_from_slice(&(u32::try_from(value).expect("a small one") | 0x8000_0000).to_be_bytes())
        }
    }
}

/// A frame as bytes.
fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    integer(&mut frame, kind);
    integer(&mut frame, payload.len() as u64);
    frame.extend_from_slice(payload);
    frame
}

/// A request's headers.
#[must_use]
pub fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    // The prefix says that there is no dynamic table. Then each header has a literal name (RFC 9204, section 4.5.6),
    // whose length is stored in three bits.
    let mut block = vec![0, 0];
    for (name, value) in pseudo.iter().chain(fields) {
        let length = |text: &str, most| u8::try_from(text.len()).ok().filter(|length| *length < most);
        match length(name, 7) {
            Some(short) => block.push(0x20 | short),
            None => block.extend([0x27, length(name, 134).expect("a short name") - 7]),
        }
        block.extend_from_slice(name.as_bytes());
        block.push(length(value, 127).expect("a short value"));
        block.extend_from_slice(value.as_bytes());
    }
    frame(HEADERS, &block)
}

/// Part of a body.
#[must_use]
pub fn data(bytes: &[u8]) -> Vec<u8> {
    frame(DATA, bytes)
}

/// The status of an answer, if it is a common one in the static table of RFC 9204.
fn status(answer: &[u8]) -> Option<u16> {
    // The first frame has the headers. They start with a prefix of two bytes, followed by the status.
    let [1, first, rest @ ..] = answer else { return None };
    let length = 1 << (first >> 6);
    match rest.get(length - 1 + 2)? ^ 0xC0 {
        25 => Some(200),
        26 => Some(304),
        27 => Some(404),
        28 => Some(503),
        _ => None,
    }
}

/// The runtime of all connections.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("a runtime")
    })
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// Where clients connect to.
#[derive(Clone, Debug)]
pub struct Door {
    /// Its address.
    pub address: SocketAddr,
    visitor: ClientConfig,
    member: ClientConfig,
    endpoint: Endpoint,
}

/// How the members of a crowd behave. They never read what they receive, and never grant more than [`GRANTED`].
#[derive(Clone, Debug)]
pub enum Habit {
    /// They start a handshake, and do nothing more.
    Mute,
    /// They connect, and open no stream.
    Silent,
    /// They send this on a stream one byte at a time, and then its last byte again and again.
    Drip(Vec<u8>),
    /// They send this on each of this many streams, and wait.
    Say(Vec<u8>, usize),
    /// They send this on each of this many streams, and then cancel the requests.
    TakeBack(Vec<u8>, usize),
    /// They fill streams of these types, each with such bytes.
    Fill(&'static [(u64, u8)]),
}

/// Clients with the same habit. They disconnect when this is dropped.
#[derive(Debug)]
pub struct Crowd {
    name: &'static str,
    habit: Habit,
    members: Vec<Member>,
    said: usize,
    /// The connections of mute members, whose handshake doesn't continue.
    mute: Vec<Connecting>,
    endpoint: Endpoint,
}

/// A client with its open streams, which would end if they were dropped.
#[derive(Debug)]
struct Member {
    connection: Connection,
    sending: Vec<SendStream>,
    receiving: Vec<RecvStream>,
}

impl Door {
    /// Clients for a server with this certificate.
    ///
    /// # Panics
    /// When there is no certificate, or no socket is available.
    #[must_use]
    pub fn new(address: SocketAddr, certificate: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).expect("a certificate")).expect("a certificate");
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let visitor = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(GRANTED.into())
            .receive_window(GRANTED_IN_ALL.into())
            .keep_alive_interval(Some(SIGN_OF_LIFE))
            .max_idle_timeout(Some(PATIENCE.try_into().expect("a short time")));
        let mut member = visitor.clone();
        member.transport_config(Arc::new(transport));
        Self { address, visitor, member, endpoint: endpoint().expect("a socket") }
    }

    /// The status of the answer to a GET on a new connection, once the whole answer has arrived.
    ///
    /// # Errors
    /// When there is no answer, or its status is unknown here.
    pub fn get(&self, path: &str) -> io::Result<u16> {
        let (door, request) = (self.clone(), request("GET", path, &[]));
        let asked = async move {
            let connection = connect(&door.endpoint, &door.visitor, door.address).await?;
            let _control = control(&connection).await?;
            let (mut send, mut receive) = connection.open_bi().await.map_err(other)?;
            send.write_all(&request).await.map_err(other)?;
            send.finish().map_err(other)?;
            let answer = receive.read_to_end(ANSWER).await.map_err(other)?;
            connection.close(NO_ERROR, b"");
            status(&answer).ok_or_else(|| io::Error::other("no status that is known"))
        };
        // Runs on the thread that also sends, so that the end of the stream leaves in the same packet as the head, as
        // with browsers.
        let asked = runtime().spawn(async { timeout(PATIENCE, asked).await });
        runtime().block_on(asked).map_err(other)??
    }

    /// Connects this many clients with a habit.
    ///
    /// # Errors
    /// When they can't connect.
    pub fn crowd(&self, name: &'static str, habit: Habit, count: usize) -> io::Result<Crowd> {
        let endpoint = endpoint()?;
        let mut crowd = Crowd { name, habit, members: Vec::new(), said: 0, mute: Vec::new(), endpoint };
        if let Habit::Mute = crowd.habit {
            crowd.mute = self.knock(&crowd.endpoint, count)?;
            return Ok(crowd);
        }
        for _ in 0..count {
            let joining = self.member(&crowd.endpoint, &crowd.habit);
            crowd.members.push(runtime().block_on(async { timeout(PATIENCE, joining).await })??);
        }
        Ok(crowd)
    }

    async fn member(&self, endpoint: &Endpoint, habit: &Habit) -> io::Result<Member> {
        let connection = connect(endpoint, &self.member, self.address).await?;
        let mut member = Member { connection, sending: Vec::new(), receiving: Vec::new() };
        if let Habit::Silent = habit {
            return Ok(member);
        }
        member.sending.push(control(&member.connection).await?);
        // The server may close the connection meanwhile, which is what the test is about.
        let _ = match habit {
            Habit::Mute | Habit::Silent => Ok(()),
            Habit::Drip(bytes) => member.say(&bytes[..1], 1).await,
            Habit::Say(bytes, streams) => member.say(bytes, *streams).await,
            Habit::TakeBack(bytes, streams) => member.take_back(bytes, *streams).await,
            Habit::Fill(streams) => member.fill(streams).await,
        };
        Ok(member)
    }

    /// Lets this many clients send the start of a handshake. They receive nothing from the server.
    fn knock(&self, endpoint: &Endpoint, count: usize) -> io::Result<Vec<Connecting>> {
        // They connect to a relay, which passes on their packets and keeps the answers.
        let between = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        between.set_read_timeout(Some(FULL))?;
        let _entered = runtime().enter();
        let connecting =
            |_| endpoint.connect_with(self.member.clone(), between.local_addr()?, "localhost").map_err(other);
        let connecting: Vec<Connecting> = (0..count).map(connecting).collect::<io::Result<_>>()?;
        let (mut heard, mut buffer) = (HashSet::new(), [0; 2048]);
        let started = Instant::now();
        while heard.len() < count {
            if let Ok((length, from)) = between.recv_from(&mut buffer)
                && from != self.address
            {
                // RFC 9000, section 17.2: after the version comes the connection id that the client chose for the
                // server.
                let id = buffer[6..].get(..usize::from(buffer[5])).unwrap_or_default();
                heard.insert(id.to_vec());
                between.send_to(&buffer[..length], self.address)?;
            }
            if started.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(connecting)
    }
}

impl Member {
    async fn say(&mut self, bytes: &[u8], streams: usize) -> io::Result<()> {
        for _ in 0..streams {
            let (mut send, receive) = self.connection.open_bi().await?;
            send.write_all(bytes).await?;
            self.sending.push(send);
            self.receiving.push(receive);
        }
        Ok(())
    }

    async fn take_back(&mut self, bytes: &[u8], streams: usize) -> io::Result<()> {
        for _ in 0..streams.div_ceil(TOGETHER) {
            self.say(bytes, TOGETHER).await?;
            // A request that is cancelled before it has left would never be sent.
            tokio::time::sleep(UNDER_WAY).await;
            // The first stream is the control stream.
            for (mut send, mut receive) in self.sending.drain(1..).zip(self.receiving.drain(..)) {
                let _ = (send.reset(REQUEST_CANCELLED), receive.stop(REQUEST_CANCELLED));
            }
        }
        Ok(())
    }

    async fn fill(&mut self, streams: &[(u64, u8)]) -> io::Result<()> {
        for &(kind, byte) in streams {
            let mut bytes = Vec::new();
            integer(&mut bytes, kind);
            let mut send = self.connection.open_uni().await?;
            send.write_all(&bytes).await?;
            bytes = vec![byte; PIECE];
            let mut sent = 0;
            while sent < GREED
                && let Ok(Ok(count)) = timeout(FULL, send.write(&bytes)).await
            {
                sent += count;
            }
            self.sending.push(send);
        }
        Ok(())
    }
}

fn endpoint() -> io::Result<Endpoint> {
    let _entered = runtime().enter();
    Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())
}

/// Opens a connection. A busy machine may miss the deadline of a handshake, so it is tried again.
async fn connect(endpoint: &Endpoint, config: &ClientConfig, address: SocketAddr) -> io::Result<Connection> {
    let started = Instant::now();
    loop {
        match endpoint.connect_with(config.clone(), address, "localhost").map_err(other)?.await {
            Ok(connection) => return Ok(connection),
            Err(why) if started.elapsed() > PATIENCE => return Err(other(why)),
            Err(_) => tokio::time::sleep(FULL).await,
        }
    }
}

/// The control stream that a client has to open, without any settings.
async fn control(connection: &Connection) -> io::Result<SendStream> {
    let mut bytes = Vec::new();
    integer(&mut bytes, CONTROL);
    bytes.extend(frame(SETTINGS, &[]));
    let mut send = connection.open_uni().await.map_err(other)?;
    send.write_all(&bytes).await.map_err(other)?;
    Ok(send)
}

impl Members for Crowd {
    fn name(&self) -> &'static str {
        self.name
    }

    fn drip(&mut self) {
        let Habit::Drip(bytes) = &self.habit else { return };
        self.said += 1;
        let byte = bytes[self.said.min(bytes.len() - 1)];
        for stream in self.members.iter_mut().filter_map(|member| member.sending.last_mut()) {
            let _ = runtime().block_on(async { timeout(FULL, stream.write(&[byte])).await });
        }
    }

    /// Members without a complete handshake can't tell, and don't count.
    fn left(&mut self) -> usize {
        self.members.retain(|member| member.connection.close_reason().is_none());
        self.members.len()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.endpoint.close(NO_ERROR, b"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_found_behind_the_head_of_their_frame() {
        for (head, rest) in [(&[1, 3][..], &[][..]), (&[1, 0x40, 3], b"more"), (&[1, 0x80, 0, 0, 3], b"")] {
            let answer = |index: u8| [head, &[0, 0, 0xC0 | index], rest].concat();
            assert_eq!(status(&answer(25)), Some(200));
            assert_eq!(status(&answer(27)), Some(404));
            assert_eq!(status(&answer(63)), None);
        }
        assert_eq!(status(&[1, 3, 0, 0]), None);
        assert_eq!(status(&[]), None);
    }

    #[test]
    fn integers_take_as_many_bytes_as_they_need() {
        let bytes = |value| {
            let mut bytes = Vec::new();
            integer(&mut bytes, value);
            bytes
        };
        assert_eq!(bytes(37), [0x25]);
        // RFC 9000, appendix A.1.
        assert_eq!(bytes(15_293), [0x7b, 0xbd]);
        assert_eq!(bytes(494_878_333), [0x9d, 0x7f, 0x3e, 0x7d]);
    }
}
