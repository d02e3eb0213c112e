//! Connects to a host that has the requested role. It tries one host after the other, each with its own deadline.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Notification};

use crate::conninfo::{Binding, Conninfo, Endpoint, Host, Role, TlsMode};
use crate::error::{Attempt, ConnectError, Error, Reason};
use crate::iam::RdsToken;
use crate::password;
use crate::session::Session;
use crate::socket::{self, Target};
use crate::tls;

/// The most notifications that wait to be handled. Further ones are dropped, since one says as much as many.
const NOTIFICATIONS: usize = 16;

/// A setting of the session, which shows whether settings reach the server: a pooler drops them.
const MARK: &str = "linerate.direct";

/// A future with a session.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Arc<Session>, Error>> + Send + 'a>>;

/// Asks for a host's role and whether settings reach it, in one round trip.
const ROLE: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, \
                    current_setting('linerate.direct', true) = 'on'";

/// Connects to servers. Clones and connectors that are derived from it share what they have learnt.
#[derive(Clone)]
pub struct Connector {
    conninfo: Arc<Conninfo>,
    application: String,
    settings: String,
    /// Makes passwords, if the connection string asks for AWS's tokens.
    tokens: Option<Arc<RdsToken>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The last suitable host, which is tried first.
    last: AtomicUsize,
    /// How often the server has changed.
    generation: AtomicU64,
}

impl Connector {
    /// A connector; `application` is the name of its sessions on the server.
    pub fn new(conninfo: &Conninfo, application: &str) -> Self {
        Self {
            conninfo: Arc::new(conninfo.clone()),
            application: application.to_owned(),
            settings: String::new(),
            tokens: conninfo.iam.as_ref().map(|iam| Arc::new(RdsToken::new(&iam.region))),
            shared: Arc::default(),
        }
    }

    /// The same connector, for sessions with another name and settings, such as `-c statement_timeout=5s`. Behind a
    /// pooler, both have no effect.
    pub fn derive(&self, application: &str, settings: &str) -> Self {
        Self { application: application.to_owned(), settings: settings.to_owned(), ..self.clone() }
    }

    /// The connection string.
    pub fn conninfo(&self) -> &Conninfo {
        &self.conninfo
    }

    /// How often the server has changed.
    pub(crate) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::SeqCst)
    }

    /// The server is a different one from now on, so earlier sessions are no longer used.
    pub(crate) fn turn(&self) {
        self.shared.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a session belongs to the current server.
    pub(crate) fn is_current(&self, session: &Session) -> bool {
        session.is_usable() && session.generation() == self.generation()
    }

    /// Connects, on the calling task's runtime.
    ///
    /// # Errors
    /// When no host is suitable, with each host's reason.
    pub fn connect(&self) -> Connecting<'_> {
        // Boxed, so that all of it is compiled here and not in every crate that connects.
        Box::pin(self.any_host())
    }

    async fn any_host(&self) -> Result<Arc<Session>, Error> {
        let mut attempts = Vec::new();
        let role = self.conninfo.role.unwrap_or(Role::Any);
        if let Some(session) = self.round(role, &mut attempts).await {
            return Ok(session);
        }
        if role == Role::PreferStandby
            && let Some(session) = self.round(Role::Any, &mut attempts).await
        {
            return Ok(session);
        }
        Err(ConnectError { attempts }.into())
    }

    /// Tries each host once.
    async fn round(&self, role: Role, attempts: &mut Vec<Attempt>) -> Option<Arc<Session>> {
        let hosts = &self.conninfo.hosts;
        let first = if self.conninfo.balanced {
            random() % hosts.len()
        } else {
            self.shared.last.load(Ordering::Relaxed).min(hosts.len() - 1)
        };
        // First the last suitable host, then all others in the order in which they are named.
        let rest = (0..hosts.len()).filter(|&index| index != first);
        for index in std::iter::once(first).chain(rest) {
            match self.host(&hosts[index], role).await {
                Ok(session) => {
                    self.shared.last.store(index, Ordering::Relaxed);
                    return Some(session);
                }
                Err(mut reasons) => attempts.append(&mut reasons),
            }
        }
        None
    }

    /// Tries each address of a host, whose name is looked up again.
    async fn host(&self, endpoint: &Endpoint, role: Role) -> Result<Arc<Session>, Vec<Attempt>> {
        let deadline = self.conninfo.connect_timeout;
        let failed = |reason| Attempt { host: endpoint.to_string(), reason };
        let targets = match &endpoint.host {
            Host::Unix(directory) => {
                vec![Target::Unix(directory.join(format!(".s.PGSQL.{}", endpoint.port)))]
            }
            Host::Tcp(name) => match in_time(deadline, resolve(name, endpoint)).await {
                Ok(addresses) => addresses.into_iter().map(Target::Tcp).collect(),
                Err(reason) => return Err(vec![failed(reason)]),
            },
        };
        let mut attempts = Vec::new();
        for target in targets {
            match in_time(deadline, self.target(endpoint, &target, role)).await {
                Ok(session) => return Ok(session),
                Err(reason) => attempts.push(failed(reason)),
            }
        }
        Err(attempts)
    }

    async fn target(&self, endpoint: &Endpoint, target: &Target, role: Role) -> Result<Arc<Session>, Reason> {
        // This is read before connecting: if the server changes meanwhile, the session counts as an earlier one.
        let generation = self.generation();
        let password = match &self.tokens {
            Some(tokens) => Some(tokens.password(password::login(&self.conninfo, endpoint)).await?),
            None => password::of(&self.conninfo, endpoint)?,
        };
        let settings = format!(
            "-c {MARK}=on {} {}",
            self.settings,
            self.conninfo.options.as_deref().unwrap_or_default()
        );
        let mut config = Config::new();
        config.application_name(self.conninfo.application_name.as_deref().unwrap_or(&self.application));
        if let Some(user) = &self.conninfo.user {
            config.user(user);
        }
        if let Some(password) = password {
            config.password(password);
        }
        if let Some(database) = &self.conninfo.database {
            config.dbname(database);
        }
        config.channel_binding(match self.conninfo.tls.binding {
            Binding::Disable => ChannelBinding::Disable,
            Binding::Prefer => ChannelBinding::Prefer,
            Binding::Require => ChannelBinding::Require,
        });
        let mut told = config.clone();
        told.options(settings.trim_end());
        let connected = match self.open(endpoint, target, &told).await {
            // A pooler rejects settings with this error.
            Err(Reason::Server(error)) if is_unknown_setting(&error) => {
                self.open(endpoint, target, &config).await
            }
            other => other,
        };
        let (client, notifications) = connected?;
        let rows = client.query_typed(ROLE, &[]).await?;
        let row = rows.first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let (standby, read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        let direct: Option<bool> = row.try_get(2)?;
        let fits = match role {
            Role::Any => true,
            Role::ReadWrite => !read_only && !standby,
            Role::ReadOnly => read_only || standby,
            Role::Primary => !standby,
            Role::Standby | Role::PreferStandby => standby,
        };
        if !fits {
            return Err(Reason::Role(role));
        }
        let pooled = direct != Some(true);
        Ok(Session::new(client, pooled, generation, endpoint.to_string(), notifications))
    }

    async fn open(
        &self,
        endpoint: &Endpoint,
        target: &Target,
        config: &Config,
    ) -> Result<(Client, mpsc::Receiver<Notification>), Reason> {
        let (tls, mut config) = (&self.conninfo.tls, config.clone());
        let mode = tls::mode(tls, target.ip());
        config.ssl_mode(if mode == TlsMode::Disable { SslMode::Disable } else { SslMode::Require });
        match target {
            Target::Unix(path) => driven(&config, socket::unix(path).await?, NoTls).await,
            Target::Tcp(address) if mode == TlsMode::Disable => {
                driven(&config, socket::tcp(*address).await?, NoTls).await
            }
            Target::Tcp(address) => {
                if tls.direct {
                    config.ssl_negotiation(SslNegotiation::Direct);
                }
                let mut connector = tls::connector(tls, mode)?;
                let name = match &endpoint.host {
                    Host::Tcp(name) => name.trim_end_matches('.').to_owned(),
                    Host::Unix(_) => address.ip().to_string(),
                };
                let stream = socket::tcp(*address).await?;
                let connect =
                    match MakeTlsConnect::<tokio::net::TcpStream>::make_tls_connect(&mut connector, &name) {
                        Ok(connect) => connect,
                        Err(never) => match never {},
                    };
                driven(&config, stream, connect).await
            }
        }
    }
}

async fn resolve(name: &str, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Reason> {
    if let Some(address) = endpoint.address {
        return Ok(vec![SocketAddr::new(address, endpoint.port)]);
    }
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name, endpoint.port)).await?.collect();
    if found.is_empty() { Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into()) } else { Ok(found) }
}

async fn in_time<T>(deadline: Duration, work: impl Future<Output = Result<T, Reason>>) -> Result<T, Reason> {
    tokio::time::timeout(deadline, work).await.unwrap_or(Err(Reason::Timeout(deadline)))
}

/// Connects over a stream, and spawns a task on the calling runtime that serves the connection.
async fn driven<S, T>(
    config: &Config,
    stream: S,
    tls: T,
) -> Result<(Client, mpsc::Receiver<Notification>), Reason>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: TlsConnect<S>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect_raw(stream, tls).await?;
    let (sender, receiver) = mpsc::channel(NOTIFICATIONS);
    tokio::spawn(drive(connection, sender));
    Ok((client, receiver))
}

async fn drive<S, T>(mut connection: Connection<S, T>, notifications: mpsc::Sender<Notification>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                // The queue is full, or nobody listens.
                let _ = notifications.try_send(notification);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
                return;
            }
            None => return,
        }
    }
}

/// Whether settings at the start of a session were refused, as pgbouncer does.
fn is_unknown_setting(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|told| told.message().contains("startup parameter"))
}

fn random() -> usize {
    let mut bytes = [0; 8];
    // Without randomness, the number is 0.
    let _ = getrandom::fill(&mut bytes);
    usize::from_ne_bytes(bytes)
}
