//! libpq's connection strings: URLs and keywords (postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING).

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// PostgreSQL's port.
const PORT: u16 = 5432;

/// How long a host may take to accept a connection, including TLS, the password and the query for its role, unless
/// `connect_timeout` says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The characters that are encoded when a database's name is shown: control characters, which could harm the reader of
/// a log, spaces, separators of a URL's parts, and % itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'/').add(b'?').add(b'#').add(b'@').add(b':');

/// Where PostgreSQL is and how to connect to it. It is shown without anything secret, and never in the form in which it
/// was given.
#[derive(Clone, PartialEq, Eq)]
pub struct Conninfo {
    pub(crate) hosts: Vec<Endpoint>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) passfile: Option<PathBuf>,
    pub(crate) database: Option<String>,
    pub(crate) tls: Tls,
    pub(crate) role: Option<Role>,
    pub(crate) connect_timeout: Duration,
    pub(crate) application_name: Option<String>,
    pub(crate) options: Option<String>,
    pub(crate) balanced: bool,
    pub(crate) iam: Option<Iam>,
}

/// One of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub host: Host,
    /// The address to use instead of looking up the name.
    pub address: Option<IpAddr>,
    pub port: u16,
}

/// A server's name, or the directory of its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or an address.
    Tcp(String),
    /// A directory with a socket `.s.PGSQL.PORT`.
    Unix(PathBuf),
}

/// What TLS has to ensure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    Disable,
    /// Encryption without a check of the certificate: a man in the middle can read and change everything.
    Require,
    /// A certificate from a known authority, for any name.
    VerifyCa,
    /// A certificate from a known authority, for this host.
    VerifyFull,
}

/// Settings of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// None: the mode depends on where the host is.
    pub mode: Option<TlsMode>,
    /// Files with authorities; none for the system's.
    pub roots: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub binding: Binding,
    /// TLS from the first byte, which PostgreSQL 17 accepts.
    pub direct: bool,
}

/// Whether the exchange of the password has to prove that there is no man in the middle (channel binding).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Binding {
    Disable,
    #[default]
    Prefer,
    Require,
}

/// Which of the hosts are suitable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Any.
    Any,
    /// A host that accepts writes.
    ReadWrite,
    /// A host that accepts no writes.
    ReadOnly,
    /// The primary.
    Primary,
    /// A standby.
    Standby,
    /// A standby, or any host if there is none.
    PreferStandby,
}

/// Makes passwords from AWS's credentials, for a database in this region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Iam {
    pub region: String,
}

/// Why a text isn't a connection string. The text isn't shown, since it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConninfo {
    /// It looks like a URL.
    #[error(
        "expected postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?PARAMETER=VALUE, with : / ? # @ and % in a name or a password percent-encoded"
    )]
    Url,
    /// It looks like keywords.
    #[error("expected keyword=value pairs, with ' and \\ in a value escaped by \\")]
    Keywords,
    /// It has a parameter that is unknown, or that means nothing here.
    #[error("one of its parameters is not known; the manual of PostgreSQL has their names, as of libpq")]
    Parameter,
    /// A parameter's value is invalid.
    #[error("{0} has a value that it cannot have")]
    Value(&'static str),
    /// The lists of hosts, addresses and ports have different lengths.
    #[error("host, hostaddr and port have different numbers of values")]
    Counts,
    /// Only one of certificate and key is given.
    #[error("sslcert and sslkey are given together, or neither")]
    KeyPair,
    /// It asks for TLS only if the server offers it.
    #[error(
        "sslmode=allow and sslmode=prefer let anybody on the way turn TLS off: say require, verify-ca or verify-full, or disable"
    )]
    Opportunistic,
}

impl Conninfo {
    /// The role that a host must have, if one is requested.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// The same, for hosts that have this role.
    pub fn with_role(&self, role: Role) -> Self {
        Self { role: Some(role), ..self.clone() }
    }

    /// Whether several servers are named.
    pub fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// The files that it names, which have to be readable.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let tls = &self.tls;
        [&tls.roots, &tls.certificate, &tls.key, &self.passfile].into_iter().flatten()
    }
}

impl FromStr for Conninfo {
    type Err = InvalidConninfo;

    fn from_str(text: &str) -> Result<Self, InvalidConninfo> {
        parse::conninfo(text)
    }
}

impl Endpoint {
    /// The host and port to show; none for a socket.
    fn shown(&self) -> Option<String> {
        let Host::Tcp(host) = &self.host else { return None };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Some(if self.port == PORT { host } else { format!("{host}:{}", self.port) })
    }
}

/// `db1:5432`, or the path of a socket.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Tcp(host) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            Host::Tcp(host) => write!(f, "{host}:{}", self.port),
            Host::Unix(directory) => write!(f, "{}/.s.PGSQL.{}", directory.display(), self.port),
        }
    }
}

/// Hosts and database, without anything that may be secret.
impl fmt::Display for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().filter_map(Endpoint::shown).collect();
        let database = self.database.as_deref().unwrap_or_default();
        write!(f, "postgres://{}/{}", hosts.join(","), utf8_percent_encode(database, ENCODED))
    }
}

impl fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
