//! The message framing that a head's fields describe: the length of the body, and whether the connection stays open.

use crate::Error;

/// Whether a field has this name, which has only lower-case letters and hyphens. `name` is a token (RFC 9110, section
/// 5.6.2), in any case. It compares words instead of bytes.
#[inline]
pub fn is_named<const LENGTH: usize>(name: &str, known: &[u8; LENGTH]) -> bool {
    // This bit turns capitals into small letters. Of what it turns into a hyphen, only the hyphen is in tokens.
    const SMALL: u8 = 0x20;
    let Ok(name) = <&[u8; LENGTH]>::try_from(name.as_bytes()) else { return false };
    name.iter().zip(known).fold(0, |differs, (byte, known)| differs | ((byte | SMALL) ^ known)) == 0
}

/// The length of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes, often zero.
    Length(u64),
    /// The chunked coding.
    Chunked,
}

/// What the fields say about the message itself.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The length of the body.
    pub framing: Framing,
    /// Whether the client leaves the connection open.
    pub keep_alive: bool,
    /// Whether the client waits for status 100 before it sends the body.
    pub expects_continue: bool,
    old: bool,
    closes: bool,
    hosts: u8,
    length: Option<u64>,
    chunked: bool,
}

impl Message {
    /// The state before the first field. `old` says whether the request is HTTP/1.0.
    #[inline]
    pub fn new(old: bool) -> Self {
        Self {
            framing: Framing::Length(0),
            keep_alive: !old,
            expects_continue: false,
            old,
            closes: false,
            hosts: 0,
            length: None,
            chunked: false,
        }
    }

    /// Reads a field. Returns whether the field concerns the message.
    ///
    /// # Errors
    /// [`Error`], if the field is ambiguous, or requests something unsupported.
    #[inline]
    pub fn takes(&mut self, name: &str, value: &[u8]) -> Result<bool, Error> {
        // The length is compared first, since most fields of most requests are none of these.
        match name.len() {
            4 if is_named(name, b"host") => self.host(value)?,
            6 if is_named(name, b"expect") => self.expect(value)?,
            10 if is_named(name, b"connection") => self.connection(value),
            14 if is_named(name, b"content-length") => self.content_length(value)?,
            17 if is_named(name, b"transfer-encoding") => self.transfer_encoding(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks all fields together.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    #[inline]
    pub fn settle(mut self) -> Result<Self, Error> {
        // Section 3.2 requires exactly one Host. HTTP/1.0 may omit it.
        match self.hosts {
            1 => {}
            0 if self.old => {}
            0 => return Err(Error::Malformed("Host is missing")),
            _ => return Err(Error::Malformed("there are two of Host")),
        }
        if self.chunked {
            // Section 6.1: both cases may be an attempt at request smuggling.
            if self.old {
                return Err(Error::Malformed("HTTP/1.0 has no Transfer-Encoding"));
            }
            if self.length.is_some() {
                return Err(Error::Malformed("there are both Content-Length and Transfer-Encoding"));
            }
            self.framing = Framing::Chunked;
        } else if let Some(length) = self.length {
            self.framing = Framing::Length(length);
        }
        self.keep_alive &= !self.closes;
        // RFC 9110, section 10.1.1: it is ignored in HTTP/1.0, and for a request without a body.
        self.expects_continue &= !self.old && self.framing != Framing::Length(0);
        Ok(self)
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Error> {
        self.hosts = self.hosts.saturating_add(1);
        if value.iter().fold(true, |all, byte| all & OF_AUTHORITY[usize::from(*byte)]) {
            Ok(())
        } else {
            Err(Error::Malformed("Host names no host"))
        }
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Error> {
        self.expects_continue = true;
        if value.eq_ignore_ascii_case(b"100-continue") { Ok(()) } else { Err(Error::Expectation) }
    }

    fn connection(&mut self, value: &[u8]) {
        // This is by far the most common value.
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return;
        }
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            // With `close` the connection closes, whatever else the field contains (section 9.6).
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Error> {
        let digits = Some(value).filter(|value| value.iter().all(u8::is_ascii_digit));
        let length = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let length = length.ok_or(Error::Malformed("Content-Length is no number"))?;
        // Section 6.3 allows equal repetitions, but no client has a reason to send two.
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Error::Malformed("there are two of Content-Length")),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Error> {
        if self.chunked {
            return Err(Error::Malformed("there are two of Transfer-Encoding"));
        }
        self.chunked = true;
        if value.eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(Error::Coding) }
    }
}

/// Whether a byte may be in `host [ ":" port ]` (RFC 3986, section 3.2.2). Userinfo is not allowed.
const OF_AUTHORITY: [bool; 256] = {
    let mut table = [false; 256];
    let others = b"-._~!$&'()*+,;=:[]%";
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};
