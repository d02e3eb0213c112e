//! The end that all heads within a second have in common.

use std::time::SystemTime;

use listener::date;

/// The end of heads, depending on how the connection continues.
#[derive(Clone, Debug, Default)]
pub struct CommonHeaders {
    pub(super) keep: Vec<u8>,
    pub(super) close: Vec<u8>,
    /// HTTP/1.0 has to be told that the connection stays open.
    pub(super) old: Vec<u8>,
}

impl CommonHeaders {
    /// The ends for this second.
    pub fn at(now: SystemTime) -> Self {
        let with = |field: &str| {
            date::with_line(date::second_of(now), |date| [date, field.as_bytes(), b"\r\n"].concat())
        };
        Self { keep: with(""), close: with("connection: close\r\n"), old: with("connection: keep-alive\r\n") }
    }

    /// Lets `write` write the end for the next answer only, which must not be for HTTP/1.0. `closes` says whether the
    /// connection ends with that answer.
    pub fn write(&mut self, closes: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let end = if closes { &mut self.close } else { &mut self.keep };
        end.clear();
        write(end);
    }

    /// The end for a connection's last answer.
    pub fn last(&self) -> &[u8] {
        &self.close
    }
}
