//! A URL as libpq takes it, which may hold a password.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio_postgres::config::Host;

/// What of a database's name is shown encoded, as it may have been given: control characters, which could do something to
/// whoever reads a log, space, and % itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A URL as libpq takes it. It is shown without anything secret, and never as it was given.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    given: String,
    /// Host, port and database.
    shown: String,
}

/// A text is no URL that both libraries read alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with one host, and : / ? # @ and % in a name or a password percent-encoded"
)]
pub struct InvalidUrl;

impl FromStr for Url {
    type Err = InvalidUrl;

    /// Refused is what the two libraries that connect would read differently: one would send a password to where the
    /// other sees a host or a database, and that would be shown.
    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        // One of the two leaves some of these out; neither minds a % that encodes nothing, which then meant itself.
        let encoded =
            |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
        let odd = text.chars().any(|letter| letter.is_whitespace() || letter.is_control());
        if odd || !text.split('%').skip(1).all(encoded) {
            return Err(InvalidUrl);
        }
        let one: tokio_postgres::Config = text.parse().map_err(|_| InvalidUrl)?;
        let other: sqlx::postgres::PgConnectOptions = text.parse().map_err(|_| InvalidUrl)?;
        let host = match one.get_hosts() {
            [] => String::new(),
            [Host::Tcp(host)] if host == other.get_host().trim_matches(['[', ']']) => host.clone(),
            // Its path is in the way of the database's name.
            [Host::Unix(path)] if other.get_socket() == Some(path) => String::new(),
            _ => return Err(InvalidUrl),
        };
        let port = match one.get_ports() {
            [] | [5432] => String::new(),
            [port] if *port == other.get_port() => format!(":{port}"),
            _ => return Err(InvalidUrl),
        };
        let user = one.get_user().is_none_or(|user| user == other.get_username());
        let database = one.get_dbname().unwrap_or_default();
        // A second @ is one of the password's, or it ended at what was not encoded.
        let plain = [host.as_str(), database].iter().all(|name| !name.contains(['@', '/', '?', '#']));
        let host_is_shown = host.chars().all(|letter| letter.is_ascii_graphic() && letter != '%');
        if !user || !plain || !host_is_shown || one.get_dbname() != other.get_database() {
            return Err(InvalidUrl);
        }
        let database = utf8_percent_encode(database, ENCODED);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Ok(Self { given: text.to_owned(), shown: format!("postgres://{host}{port}/{database}") })
    }
}

impl Url {
    /// The URL with all that is in it, for who connects.
    pub fn expose(&self) -> &str {
        &self.given
    }
}

/// Without what a URL may hold of secrets.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
