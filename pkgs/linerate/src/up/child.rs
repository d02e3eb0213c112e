//! A running service, and its output.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::Error;

/// How long a service may take to end before it is killed: longer than every service's default drain time.
const PATIENCE: Duration = Duration::from_secs(40);

/// The longest line that is passed on whole, in bytes.
const MAX_LINE: usize = 16 * 1024;

/// The start of the line with the token, which `linerate-links serve --print-token` prints.
const TOKEN: [&str; 2] = ["token ", "key "];

/// A line of a service's output.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The service.
    pub name: &'static str,
    /// The line.
    pub line: String,
}

/// Where a ready service answers with status 200.
#[derive(Clone, Debug)]
pub enum ReadyAt {
    /// `/readyz` of its admin listener.
    Admin(SocketAddr),
    /// This path on a Unix socket.
    Unix(PathBuf, &'static str),
}

/// A running service, which is killed when this is dropped, and told to end when the thread that started it has ended.
#[derive(Debug)]
pub struct Child {
    name: &'static str,
    process: tokio::process::Child,
    ready_at: ReadyAt,
    token: Option<mpsc::Receiver<String>>,
}

impl Child {
    /// Starts it, on the main thread. Calls `said` with each line of its output.
    pub fn start(
        name: &'static str,
        mut command: Command,
        ready_at: ReadyAt,
        said: impl Fn(&LogLine) + Clone + 'static,
    ) -> Result<Self, Error> {
        let program = command.get_program().into();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        // Ctrl-C signals the whole foreground process group. With a group of its own, each service gets only the signal
        // that `up` sends.
        command.process_group(0).kill_on_drop(true);
        end_with_this_process(&mut command);
        let mut process = command.spawn().map_err(|source| Error::Start { program, source })?;
        let (send, token) = mpsc::channel(1);
        let to = said.clone();
        tokio::task::spawn_local(lines(process.stdout.take(), move |line| {
            if let Some(token) = TOKEN.iter().find_map(|word| line.strip_prefix(word)) {
                drop(send.try_send(token.trim().to_owned()));
            } else {
                to(&LogLine { name, line });
            }
        }));
        tokio::task::spawn_local(lines(process.stderr.take(), move |line| said(&LogLine { name, line })));
        Ok(Self { name, process, ready_at, token: Some(token) })
    }

    /// Its name and process ID while it runs.
    pub fn process(&self) -> Option<(&'static str, u32)> {
        Some((self.name, self.process.id()?))
    }

    /// Receives the token if the service prints one. To be called only once.
    pub fn token(&mut self) -> mpsc::Receiver<String> {
        self.token.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Waits until the service is ready.
    pub async fn ready(&mut self, patience: Duration) -> Result<(), Error> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(Error::Ended { name: self.name, status });
            }
            if is_ready(&self.ready_at).await {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(Error::NotReady { name: self.name })
    }

    /// Waits until the service ends by itself, which is an error.
    pub async fn ended(&mut self) -> Error {
        match self.process.wait().await {
            Ok(status) => Error::Ended { name: self.name, status },
            Err(error) => error.into(),
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            // It may have ended by itself in the meantime.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits until it has ended, and kills it after `PATIENCE`.
    pub async fn end(&mut self) {
        if timeout(PATIENCE, self.process.wait()).await.is_err() {
            drop(self.process.kill().await);
        }
    }
}

/// Has the kernel send SIGTERM to the process that `command` starts once the thread that starts it has ended, even if
/// that was killed (`PR_SET_PDEATHSIG`, prctl(2)).
#[allow(unsafe_code)]
fn end_with_this_process(command: &mut tokio::process::Command) {
    let parent = getpid();
    let before = move || -> std::io::Result<()> {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // If the parent ended before that call, no signal comes any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec, it only makes system calls: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(before) };
}

/// Asks a service whether it is ready.
async fn is_ready(at: &ReadyAt) -> bool {
    let ask = async {
        match at {
            ReadyAt::Admin(address) => {
                let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
                is_ok(TcpStream::connect(address).await?, &request).await
            }
            ReadyAt::Unix(socket, path) => {
                let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                is_ok(UnixStream::connect(socket).await?, &request).await
            }
        }
    };
    matches!(timeout(Duration::from_secs(1), ask).await, Ok(Ok(true)))
}

/// Whether a request is answered with 200.
async fn is_ok(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> std::io::Result<bool> {
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status == *b"HTTP/1.1 200")
}

/// Passes output on, line by line.
async fn lines(from: Option<impl AsyncRead + Unpin>, mut to: impl FnMut(String)) {
    let Some(from) = from else { return };
    let mut from = BufReader::with_capacity(MAX_LINE, from);
    loop {
        // The buffer limits the length of a line; the rest of a longer line becomes the next one.
        let Ok(bytes) = from.fill_buf().await else { return };
        if bytes.is_empty() {
            return;
        }
        let mut line = Vec::new();
        while line.len() < MAX_LINE {
            let Ok(bytes) = from.fill_buf().await else { return };
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let take = end.unwrap_or(bytes.len()).min(MAX_LINE - line.len());
            line.extend_from_slice(&bytes[..take]);
            let done = bytes.is_empty() || end == Some(take);
            from.consume(take + usize::from(end == Some(take)));
            if done {
                break;
            }
        }
        to(String::from_utf8_lossy(&line).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn lines_are_passed_on_and_long_ones_in_parts() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let text = format!("one\n\n{}\nlast", "x".repeat(MAX_LINE + 5));
        let heard = RefCell::new(Vec::new());
        runtime.block_on(lines(Some(text.as_bytes()), |line| heard.borrow_mut().push(line)));
        let lengths: Vec<usize> = heard.borrow().iter().map(String::len).collect();
        assert_eq!(lengths, [3, 0, MAX_LINE, 5, 4]);
    }
}
