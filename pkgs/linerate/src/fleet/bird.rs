//! BIRD's control socket: enables and disables protocols, as birdc does.
//!
//! A reply consists of lines `CODE-text` or ` text`, and ends with `CODE text` (BIRD's doc/reply_codes): 0xxx means
//! done, 8xxx and 9xxx refused.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long BIRD may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest reply, in bytes.
const MAX_REPLY: u64 = 64 << 10;

/// Why a protocol wasn't enabled or disabled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// BIRD isn't there or doesn't answer.
    #[error("BIRD at {}: {source}", path.display())]
    Away {
        /// Its socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It refuses.
    #[error("BIRD refuses: {0}")]
    Refused(String),
}

/// Enables or disables protocols. Protocols that already have the wanted state stay as they are.
///
/// # Errors
/// When BIRD isn't there, doesn't answer in time, or knows no such protocol. The protocols before that one have been
/// changed.
pub fn set(socket: &Path, protocols: &[String], on: bool) -> Result<(), Error> {
    let away = |source| Error::Away { path: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).map_err(away)?;
    let timeouts = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(away)?;
    let mut commands = &stream;
    let mut replies = BufReader::new((&stream).take(MAX_REPLY));
    // The greeting.
    reply(&mut replies).map_err(away)?;
    for protocol in protocols {
        let command = if on { "enable" } else { "disable" };
        // In a single write, since BIRD expects a whole line.
        commands.write_all(format!("{command} {protocol}\n").as_bytes()).map_err(away)?;
        let said = reply(&mut replies).map_err(away)?;
        if said.starts_with(['8', '9']) {
            return Err(Error::Refused(said.chars().skip(5).collect()));
        }
    }
    Ok(())
}

/// The last line of a reply, or the first line that reports a refusal.
fn reply(replies: &mut impl BufRead) -> io::Result<String> {
    let mut refused = None;
    loop {
        let mut line = String::new();
        if replies.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_owned();
        if line.starts_with(['8', '9']) {
            refused.get_or_insert(line.clone());
        }
        // A line such as `CODE-NAME: enabled` isn't the last one: a line with `0000` follows it.
        let code = line.len() >= 4 && line.as_bytes()[..4].iter().all(u8::is_ascii_digit);
        if code && line.as_bytes().get(4) != Some(&b'-') {
            return Ok(refused.unwrap_or(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_with_its_last_line_and_a_refusal_counts() {
        for (text, expected) in [
            ("0001 BIRD 2.0.12 ready.\n", Some("0001 BIRD 2.0.12 ready.")),
            ("0011-service4: enabled\n0000 \n", Some("0000")),
            ("0011-a: enabled\n b\n0000\n", Some("0000")),
            ("8003-No protocols match\n0000\n", Some("8003-No protocols match")),
            ("9001 syntax error\n", Some("9001 syntax error")),
            ("0011-a: enabled\n", None),
            ("", None),
        ] {
            assert_eq!(reply(&mut text.as_bytes()).ok().as_deref(), expected, "{text:?}");
        }
    }
}
