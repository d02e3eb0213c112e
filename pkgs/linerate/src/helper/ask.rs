//! A client for the helper.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Answer, MOST_ANSWER, Request};

/// How long it may take to answer: longer than its longest action.
const PATIENCE: Duration = Duration::from_secs(150);

/// Asks the helper behind a socket.
///
/// # Errors
/// When it can't be reached, or its answer is malformed.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut answer = Vec::new();
    // As JSON, a string may be two and a half times as long.
    stream.take(3 * MOST_ANSWER).read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it hung up: this user may not ask it"));
    }
    Ok(serde_json::from_slice(&answer)?)
}
