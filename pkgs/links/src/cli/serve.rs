//! `serve`: both listeners, from start to drain.

use std::io::Write;
use std::net::TcpListener;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use service::logs::{self, LogArgs};
use service::metrics::{Family, Registry};
use service::ready::{self, Readiness};
use service::shutdown::Shutdown;
use service::socket::{self, Address, Listener, TcpOptions};
use service::workers;

use super::database::DatabaseArgs;
use super::policy::PolicyArgs;
use crate::admin;
use crate::cache::Cache;
use crate::clicks::Ledger;
use crate::front::{Attempts, Front, Metrics, Pulse, Settings};
use crate::store::{self, Options, Scope, Store};

/// The name of the token that `--print-token` renews.
const CONSOLE_TOKEN: &str = "console";

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where redirects are answered: IP:PORT, :PORT or systemd:NAME; may be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// Where the API, health and metrics are answered: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin: Address,

    /// Which database.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// A TOML file with settings, named as the flags without their dashes in front.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Prints a new admin token named "console", which replaces the last one of that name. Without this
    /// flag, one is printed only when the database has no token yet.
    #[arg(long)]
    pub print_token: bool,

    /// Threads that answer redirects. Default: one for each CPU this process may use.
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub workers: Option<NonZero<usize>>,

    /// Memory for the cache of links, in bytes; 0 turns it off.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, help_heading = "Resources")]
    pub cache_bytes: u64,

    /// Connections of all workers together; further ones are closed at once.
    #[arg(long, value_name = "N", default_value_t = 16_384, help_heading = "Resources",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_connections: usize,

    /// Connections that may wait to be accepted; net.core.somaxconn caps it.
    #[arg(long, value_name = "N", default_value_t = TcpOptions::default().backlog, help_heading = "Resources",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub backlog: i32,

    /// Writes that may wait for the database; further ones are answered 503.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Resources",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub write_queue: usize,

    /// How long a request's head may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Resources",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub head_timeout: u64,

    /// How long a connection may be idle, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 75, help_heading = "Resources",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_timeout: u64,

    /// How long requests in flight have at shutdown, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Resources")]
    pub drain_timeout: u64,

    /// Where / redirects to. Default: 404.
    #[arg(long, value_name = "URL", help_heading = "Public listener")]
    pub root_target: Option<url::Url>,

    /// Where /favicon.ico redirects to. Default: 404.
    #[arg(long, value_name = "URL", help_heading = "Public listener")]
    pub favicon_target: Option<url::Url>,

    /// A file with the text of /robots.txt. Default: crawlers may follow links.
    #[arg(long, value_name = "FILE", help_heading = "Public listener")]
    pub robots: Option<PathBuf>,

    /// Sends a small page with each redirect, for clients that do not follow.
    #[arg(long, help_heading = "Public listener")]
    pub redirect_body: bool,

    /// How long browsers may keep a redirect, in seconds; visits within are not counted.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, help_heading = "Public listener")]
    pub redirect_max_age: u32,

    /// Which codes and targets are taken.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// Why the server did not start or end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error("{path}: {source}")]
    Store {
        /// Which.
        path: PathBuf,
        /// Why.
        source: store::Error,
    },
    /// A listener.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// `--listen` names a Unix socket.
    #[error("redirects are answered on TCP only, not on {0}")]
    NotTcp(Address),
    /// A file that was named cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Signals, threads or the admin listener.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Text of `/robots.txt` unless configured.
const ROBOTS: &str = "User-agent: *\nDisallow:\n";

/// Runs the server until it is told to stop.
pub fn run(args: Args) -> Result<(), Error> {
    logs::init(&args.logs);
    let shutdown = Shutdown::on_signals()?;
    let readiness = Readiness::new();
    let count = workers::count(args.workers);
    let settings = settings(&args, count)?;

    let path = args.database.path();
    let failed = |source| Error::Store { path: path.clone(), source };
    let cache = Arc::new(Cache::new(args.cache_bytes));
    let coherent = Arc::clone(&cache);
    let store = Store::open(Options {
        path: path.clone(),
        codes: args.policy.codes(),
        targets: args.policy.targets(),
        queue: args.write_queue,
        on_change: Box::new(move |change| coherent.changed(&change)),
    })
    .map_err(failed)?;

    let listeners = listen(&args, count)?;
    let public: Vec<_> = listeners[0].iter().filter_map(|socket| socket.local_addr().ok()).collect();
    let admin = args.admin.listen(&TcpOptions { reuse_port: false, ..TcpOptions::default() })?;
    let admin_address = admin.address();

    let front = Arc::new(Front {
        settings,
        store: store.clone(),
        cache,
        ledger: Ledger::default(),
        attempts: Attempts::default(),
        metrics: Arc::new(Metrics::new(count)),
        shutdown: shutdown.clone(),
    });
    let registry = registry(&front);
    let threads = front.start(listeners, workers::pinnable(count)).map_err(failed)?;
    let base = args.policy.public.public_url.as_str();
    let state = admin::State::new(store.clone(), base, readiness.clone(), registry).map_err(failed)?;
    let admin = serve_admin(admin, state, shutdown.clone())?;

    let token = token(&store, args.print_token).map_err(failed)?;
    greet(&public, admin_address.as_ref(), &path, token.as_deref());
    readiness.set_ready();
    let mut pulse = Pulse::new(Arc::clone(&front.metrics));
    ready::watchdog(move || pulse.beats())?;

    tokio::runtime::Builder::new_current_thread().build()?.block_on(shutdown.wait());
    readiness.set_stopping();
    // The workers end when their connections have drained.
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a worker ended in a panic");
        }
    }
    front.close();
    if !matches!(admin.join(), Ok(Ok(()))) {
        tracing::error!("the admin listener did not end well");
    }
    store.close();
    Ok(())
}

/// The admin listener, on a thread of its own; one worker is plenty.
fn serve_admin(
    listener: Listener,
    state: admin::State,
    shutdown: Shutdown,
) -> std::io::Result<JoinHandle<std::io::Result<()>>> {
    std::thread::Builder::new().name("admin".into()).spawn(move || {
        let serving = admin::serve(vec![listener], Arc::new(state), 1, shutdown);
        actix_web::rt::System::new().block_on(serving)
    })
}

/// The settings of each of `count` workers.
fn settings(args: &Args, count: usize) -> Result<Settings, Error> {
    let robots = match &args.robots {
        None => ROBOTS.to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).map_err(|source| Error::File { path: path.clone(), source })?
        }
    };
    Ok(Settings {
        root_target: args.root_target.as_ref().map(url::Url::to_string),
        favicon_target: args.favicon_target.as_ref().map(url::Url::to_string),
        robots,
        redirect_body: args.redirect_body,
        redirect_max_age: args.redirect_max_age,
        connections: args.max_connections.div_ceil(count),
        head_timeout: Duration::from_secs(args.head_timeout),
        idle_timeout: Duration::from_secs(args.idle_timeout),
        drain_timeout: Duration::from_secs(args.drain_timeout),
    })
}

/// The sockets of each worker: one of its own on each address, or all the same one where systemd passed it.
fn listen(args: &Args, count: usize) -> Result<Vec<Vec<TcpListener>>, Error> {
    let mut listeners: Vec<Vec<TcpListener>> = (0..count).map(|_| Vec::new()).collect();
    for address in &args.listen {
        let mut address = address.clone();
        if let Address::Tcp(_) = address {
            // Sharing the port is for our own workers: another server on it is an error, not a partner.
            let exclusive = TcpOptions { reuse_port: false, ..options(args) };
            drop(address.listen(&exclusive)?);
        }
        let mut passed: Option<TcpListener> = None;
        for sockets in &mut listeners {
            let socket = match &passed {
                Some(socket) => socket.try_clone()?,
                None => match address.listen(&options(args))? {
                    Listener::Tcp(socket) => socket,
                    Listener::Unix(_) => return Err(Error::NotTcp(address)),
                },
            };
            match address {
                // Port 0 became a real one that all workers share.
                Address::Tcp(_) => address = Address::Tcp(socket.local_addr()?),
                _ => passed = Some(socket.try_clone()?),
            }
            sockets.push(socket);
        }
    }
    Ok(listeners)
}

fn options(args: &Args) -> TcpOptions {
    TcpOptions { backlog: args.backlog, reuse_port: true, ..TcpOptions::default() }
}

fn registry(front: &Arc<Front>) -> Registry {
    let mut registry = Registry::default();
    service::metrics::register_process(&mut registry);
    front.metrics.register(&mut registry);
    let mut gauge = |name, help, read: fn(&Front) -> u64| {
        let front = Arc::clone(front);
        Family::new(name, help).with(&[], move || read(&front) as f64).register(&mut registry);
    };
    gauge("links_cache_entries", "Codes in the cache", |front| front.cache.len());
    gauge("links_cache_bytes", "Memory the cache is reckoned at", |front| front.cache.bytes());
    gauge("links_clicks_pending", "Clicks counted and not yet in the store", |front| front.ledger.pending());
    gauge("links_write_queue_depth", "Writes that wait for the database", |front| front.store.depth() as u64);
    registry
}

/// A token for the console: on request, or where there is none to begin with. None on a read-only database.
fn token(store: &Store, renew: bool) -> Result<Option<String>, store::Error> {
    let tokens = store.reader()?.tokens()?;
    if !renew && !tokens.is_empty() {
        return Ok(None);
    }
    for token in tokens.iter().filter(|token| token.name == CONSOLE_TOKEN) {
        store.revoke_token(token.id).wait()?;
    }
    match store.create_token(CONSOLE_TOKEN.to_owned(), Scope::Write).wait() {
        Ok((_, secret)) => Ok(Some(secret)),
        Err(store::Error::ReadOnly | store::Error::Full) if !renew => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says on stdout where everything is. Where nobody listens, the server runs all the same.
fn greet(
    public: &[std::net::SocketAddr],
    admin: Option<&Address>,
    database: &std::path::Path,
    token: Option<&str>,
) {
    let mut lines = String::new();
    for address in public {
        lines.push_str(&format!("links     http://{address}/\n"));
    }
    match admin {
        Some(Address::Tcp(address)) => lines.push_str(&format!("admin     http://{address}/api/v1\n")),
        Some(address) => lines.push_str(&format!("admin     {address}\n")),
        None => {}
    }
    lines.push_str(&format!("database  {}\n", database.display()));
    if let Some(token) = token {
        lines.push_str(&format!("token     {token}\n"));
    }
    let _ = std::io::stdout().write_all(lines.as_bytes());
}
