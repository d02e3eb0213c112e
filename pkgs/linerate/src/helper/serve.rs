//! The helper as a service: who may ask, how long that may take, and how many may ask at once.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use serde::Serialize;
use service::socket::is_about_one_connection;

use super::{Answer, MOST_REQUEST, Request, Worker};

/// The most connections at once.
const CONNECTIONS: usize = 8;

/// How long receiving a request, or sending its answer, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A user who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User(u32);

impl From<u32> for User {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        let users =
            std::fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let number = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
        });
        number.map(Self).ok_or_else(|| format!("/etc/passwd has no user {text}"))
    }
}

/// A request and its outcome, as logged.
#[derive(Debug, Serialize)]
struct Line<'a> {
    kind: &'static str,
    uid: Option<u32>,
    pid: Option<i32>,
    by: Option<&'a str>,
    action: Option<&'static str>,
    target: Option<&'a str>,
    error: Option<&'a str>,
}

/// Answers the given users, one request per connection, until the process ends. Writes each request to `log` as a line
/// of JSON.
///
/// # Errors
/// When connections can't be accepted.
pub fn serve(
    listener: &UnixListener,
    users: &BTreeSet<User>,
    worker: &Arc<Worker>,
    log: fn(&str),
) -> io::Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_about_one_connection(&error) => continue,
            // Too many open files; the next attempt may succeed.
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            Err(error) => return Err(error),
        };
        let peer = socket_peercred(&stream).ok();
        let uid = peer.as_ref().map(|peer| peer.uid.as_raw());
        let pid = peer.as_ref().map(|peer| peer.pid.as_raw_nonzero().get());
        if !uid.is_some_and(|uid| users.contains(&User(uid))) {
            // Other users get neither an answer nor a thread.
            note(
                log,
                &Line {
                    kind: "audit",
                    uid,
                    pid,
                    by: None,
                    action: None,
                    target: None,
                    error: Some("not a user who may ask"),
                },
            );
            continue;
        }
        let Some(place) = Place::take(&open) else {
            let why = "there are too many requests at once";
            note(
                log,
                &Line { kind: "audit", uid, pid, by: None, action: None, target: None, error: Some(why) },
            );
            let mut stream = stream;
            // The answer is a few bytes, and the send buffer of a new socket always has room for them.
            let _ = stream.set_nonblocking(true).and_then(|()| write(&mut stream, &refused(why)));
            continue;
        };
        let worker = Arc::clone(worker);
        let begun = thread::Builder::new().name("request".into()).spawn(move || {
            let (mut stream, _place) = (stream, place);
            let (request, answer) = match read(&mut stream) {
                Err(error) => (None, refused(&format!("the request has not come: {error}"))),
                Ok(text) => match Request::parse(&text) {
                    Err(error) => (None, refused(&error.to_string())),
                    Ok(request) => {
                        let answer = worker.work(&request);
                        (Some(request), answer)
                    }
                },
            };
            note(
                log,
                &Line {
                    kind: "audit",
                    uid,
                    pid,
                    by: request.as_ref().map(|request| request.by.as_str()),
                    action: request.as_ref().map(|request| request.verb.name()),
                    target: request.as_ref().map(|request| request.verb.target()),
                    error: answer.error.as_deref(),
                },
            );
            let _ = write(&mut stream, &answer);
        });
        if let Err(error) = begun {
            let why = format!("no thread: {error}");
            note(
                log,
                &Line { kind: "audit", uid, pid, by: None, action: None, target: None, error: Some(&why) },
            );
        }
    }
}

/// One of the slots for connections.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(open));
        // Dropping it gives the slot back, even if there was none left.
        (open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refused(why: &str) -> Answer {
    Answer { output: String::new(), error: Some(why.to_owned()) }
}

fn note(log: fn(&str), line: &Line<'_>) {
    if let Ok(text) = serde_json::to_string(line) {
        log(&text);
    }
}

/// Reads a line, within the limits of time and length.
fn read(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    let mut some = [0; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => text.extend_from_slice(&some[..length]),
        }
        if let Some(line) = text.iter().position(|byte| *byte == b'\n') {
            text.truncate(line);
            return Ok(text);
        }
        if text.len() as u64 > MOST_REQUEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("more than {MOST_REQUEST} bytes"),
            ));
        }
    }
}

/// Writes the answer, within the time limit.
fn write(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let text = serde_json::to_vec(answer).map_err(io::Error::other)?;
    let end = Instant::now() + PATIENCE;
    let mut rest = &text[..];
    while !rest.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            length => rest = &rest[length..],
        }
    }
    Ok(())
}
