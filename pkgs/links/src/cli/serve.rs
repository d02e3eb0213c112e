//! `serve`: both listeners, from start to drain.

use std::io::Write;
use std::net::TcpListener;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use listener::ConnectionLimit;
use listener::WithFastPath;
use listener::tls::Store as Certificates;
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::logs::{self, LogArgs};
use service::metrics::{Family, Registry};
use service::panics;
use service::permissions;
use service::proxies::ProxyArgs;
use service::ready::{self, Readiness, STUCK, Watch};
use service::shutdown::Shutdown;
use service::socket::{self, Address, Listener, TcpOptions};
use service::tls::TlsArgs;
use service::workers;

use super::database::DatabaseArgs;
use super::policy::PolicyArgs;
use crate::admin;
use crate::cache::Cache;
use crate::clicks::Ledger;
use crate::front::{
    Attempts, Front, HttpService, MAX_BODY_BYTES, MAX_FIELDS, MAX_HEAD_BYTES, Metrics, Secured, Settings,
};
use crate::store::{self, Options, Scope, Store};

/// The name of the token that `--print-token` renews.
const CONSOLE_TOKEN: &str = "console";

/// How long the database's writer may be at one transaction: no disk that is worth waiting for holds one up longer.
const WRITE_STUCK: Duration = Duration::from_secs(120);

/// How often the threads are looked for.
const LOOK: Duration = Duration::from_millis(250);

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// By TLS too.
    #[command(flatten)]
    pub tls: TlsArgs,

    /// Sends visitors in the clear to the same address by TLS, by 308: at the port of --public-url where that is https,
    /// at that of the first --tls-listen otherwise.
    #[arg(long, requires = "tls_listen", help_heading = "Public listener")]
    pub https_redirect: bool,

    /// Has browsers that came by TLS come by nothing else for so long (Strict-Transport-Security), in seconds. Default:
    /// not said.
    #[arg(long, value_name = "SECONDS", requires = "tls_listen", help_heading = "Public listener")]
    pub hsts: Option<u32>,

    /// Which proxies are in front of the public listeners.
    #[command(flatten)]
    pub proxies: ProxyArgs,

    /// Where the API, health and metrics are answered: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin: Address,

    /// By which names the admin listener is asked.
    #[command(flatten)]
    pub allowed_hosts: AllowedHostArgs,

    /// Which database.
    #[command(flatten)]
    pub database: DatabaseArgs,

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

    /// Connections of all workers, in the clear and by TLS together; further ones are closed at once.
    #[arg(long, value_name = "N", default_value_t = 16_384, help_heading = "Resources",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_connections: usize,

    /// Connections that may wait to be accepted; net.core.somaxconn caps it.
    #[arg(long, value_name = "N", default_value_t = TcpOptions::default().backlog, help_heading = "Resources",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub backlog: i32,

    /// For how many days before today clicks are told apart by day; older ones stay in all other sums. 0: for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 400, help_heading = "Resources",
          value_parser = clap::value_parser!(u32).range(..=36_525))]
    pub click_retention: u32,

    /// Writes that may wait for the database; further ones are answered 503.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Resources",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub write_queue: usize,

    /// How long a request's head may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Resources",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub head_timeout: u64,

    /// How long a body sent to the admin listener may take, in seconds. A file to import may take longer, while some of
    /// it comes.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Resources",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub body_timeout: u64,

    /// How long a connection may be idle, in seconds. What is below the time of a proxy in front closes connections it
    /// is about to use.
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
    /// The TLS listener.
    #[error(transparent)]
    Listener(#[from] listener::Error),
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
    /// A thread ended that should not have.
    #[error("{0} ended in a panic; the log says which")]
    Ended(&'static str),
    /// Signals, threads or the admin listener.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Text of `/robots.txt` unless configured.
const ROBOTS: &str = "User-agent: *\nDisallow:\n";

/// Runs the server until it is told to stop.
pub fn run(mut args: Args, json: bool) -> Result<(), Error> {
    logs::init(&args.logs);
    panics::install();
    // Before anything is made that would be left behind.
    if let Some(unix) = args.policy.public.listen.iter().find(|address| matches!(address, Address::Unix(_))) {
        return Err(Error::NotTcp(unix.clone()));
    }
    let reloaded: Arc<OnceLock<Arc<Certificates>>> = Arc::default();
    let shutdown = {
        let reloaded = Arc::clone(&reloaded);
        Shutdown::on_signals_and_hangup(move || reloaded.get().into_iter().for_each(reload))?
    };
    let readiness = Readiness::new();
    let count = workers::count(args.workers);
    let settings = settings(&args)?;

    // Whom to send elsewhere is the TLS listener's to answer, and then there is nobody left for the plain one: its
    // worker hands clicks to the store, and no more.
    let listeners = if args.https_redirect { vec![Vec::new()] } else { listen(&args, count)? };
    let by_tls = if args.tls.tls_listen.is_empty() { 0 } else { count };
    let metrics = Arc::new(Metrics::new(listeners.len(), by_tls));
    let secure =
        (by_tls > 0).then(|| listener::Listener::new(secure(&args, &settings, &metrics))).transpose()?;
    if let Some(certificates) = secure.as_ref().and_then(listener::Listener::certificates) {
        let _ = reloaded.set(Arc::clone(certificates));
    }
    let mut plain: Vec<_> =
        listeners[0].iter().filter_map(|socket| socket.local_addr().ok().map(Address::Tcp)).collect();
    let mut https = secure.as_ref().map_or_else(Vec::new, |secure| secure.addresses().to_vec());
    if args.https_redirect {
        plain.extend(https.drain(..args.policy.public.listen.len()));
    }
    args.policy.public.listen = plain.clone();
    args.policy.also_at(&https);

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
    permissions::restrict(&path);

    let admin = args.admin.listen(&TcpOptions { reuse_port: false, ..TcpOptions::default() })?;
    let admin_address = admin.address();

    let front = Arc::new(Front {
        settings,
        store: store.clone(),
        cache,
        ledger: Ledger::default(),
        attempts: Attempts::default(),
        metrics,
        shutdown: shutdown.clone(),
    });
    let mut registry = registry(&front);
    let mut watches = vec![front.metrics.beats.watch(STUCK), store.watch(WRITE_STUCK)];
    let pinned = workers::pinnable(listeners.len());
    let mut threads = front.start(listeners, pinned).map_err(failed)?;
    if let Some(secure) = secure {
        secure.metrics().register(&mut registry, "linerate_links");
        watches.push(secure.heartbeats().watch(STUCK));
        let service = HttpService::new(Arc::clone(&front), by_tls, secured(&args, &https)).map_err(failed)?;
        let service = WithFastPath { fast: service.clone(), service };
        threads.push(secure.start("links-tls", service, &shutdown)?);
    }
    let base = args.policy.public.base();
    let mut state = admin::State::new(store.clone(), &base, readiness.clone(), registry).map_err(failed)?;
    state = state.with_patience(admin::Patience {
        head: Duration::from_secs(args.head_timeout),
        body: Duration::from_secs(args.body_timeout),
        idle: Duration::from_secs(args.idle_timeout),
    });
    if let Some(address @ Address::Tcp(at)) = &admin_address
        && at.ip().is_loopback()
    {
        state = state.only_for(AllowedHosts::new(&args.allowed_hosts, [address]));
    }
    let admin_beats = state.heartbeats();
    let admin = serve_admin(admin, state, shutdown.clone())?;

    let token = token(&store, args.print_token).map_err(failed)?;
    // Whoever reads where it listens finds it ready.
    readiness.set_ready();
    greet(json, &plain, &https, admin_address.as_ref(), &path, token.as_deref());
    watches.push(admin_beats.watch(STUCK));
    ready::watchdog(move || watches.iter_mut().all(Watch::alive))?;

    supervise(&shutdown, || admin.is_finished() || store.has_ended())?;
    readiness.set_stopping();
    // The workers end when their connections have drained.
    let mut ended = None;
    for thread in threads {
        if thread.join().is_err() {
            ended = Some("a worker");
        }
    }
    if ended.is_none() && shutdown.outcome().is_err() {
        ended = Some("a listener");
    }
    if store.has_ended() {
        ended = Some("the database's writer");
    }
    front.close();
    if !matches!(admin.join(), Ok(Ok(()))) {
        ended = Some("the admin listener");
    }
    store.close();
    ended.map_or(Ok(()), |thread| Err(Error::Ended(thread)))
}

/// Waits until it is time to stop: told to, or one of the threads there should be is there no more.
fn supervise(shutdown: &Shutdown, has_ended: impl Fn() -> bool) -> std::io::Result<()> {
    let ended = async {
        while !has_ended() {
            tokio::time::sleep(LOOK).await;
        }
        tracing::error!("a thread ended: so does the service");
        shutdown.fail();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        tokio::select! {
            // Told to stop, threads end: then that is no failure.
            biased;
            () = shutdown.wait() => {}
            () = ended => {}
        }
    });
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

/// The settings of all workers.
fn settings(args: &Args) -> Result<Settings, Error> {
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
        proxies: (&args.proxies).into(),
        connections: ConnectionLimit::new(args.max_connections),
        head_timeout: Duration::from_secs(args.head_timeout),
        idle_timeout: Duration::from_secs(args.idle_timeout),
        drain_timeout: Duration::from_secs(args.drain_timeout),
        click_retention: NonZero::new(args.click_retention),
    })
}

/// Loads the certificate anew; one that cannot be used leaves the old one in place.
fn reload(certificates: &Arc<Certificates>) {
    match certificates.reload() {
        Ok(()) => tracing::info!("the certificate was read again"),
        Err(error) => {
            tracing::error!(error = service::exit::chain(&error), "the certificate stays as it is");
        }
    }
}

/// The listener that speaks TLS, and in the clear sends visitors there where that is asked for.
fn secure(args: &Args, settings: &Settings, metrics: &Arc<Metrics>) -> listener::Config {
    let head = Duration::from_secs(args.head_timeout);
    let plain = args.policy.public.listen.iter().filter(|_| args.https_redirect);
    let plain = plain.cloned().map(listener::Endpoint::plain);
    let secure = args.tls.tls_listen.iter().cloned().map(listener::Endpoint::tls);
    listener::Config {
        endpoints: plain.chain(secure).collect(),
        runtime: listener::Runtime::PerCore(args.workers),
        tls: args.tls.files().map(|(cert, key)| listener::Tls::new(cert, key)),
        proxies: (&args.proxies).into(),
        limits: listener::Limits {
            handshake_time: head,
            head_bytes: MAX_HEAD_BYTES,
            head_time: head,
            fields: MAX_FIELDS,
            body_bytes: MAX_BODY_BYTES,
            body_idle: head,
            body_time: head,
            idle: Duration::from_secs(args.idle_timeout),
            write_stall: head,
            ..listener::Limits::default()
        },
        connections: Some(Arc::clone(&settings.connections)),
        refusals: Some(Arc::clone(metrics) as Arc<dyn listener::Refusals>),
        tcp: listener::Tcp { backlog: args.backlog, ..listener::Tcp::default() },
        // What is sent here are forms of a few hundred bytes.
        http2: listener::Http2 {
            stream_window: 16 * 1024,
            connection_window: 64 * 1024,
            adaptive: false,
            ..listener::Http2::default()
        },
        http3: args.tls.http3(),
        drain: Duration::from_secs(args.drain_timeout),
        ..listener::Config::default()
    }
}

/// What is particular to visitors by TLS, who find it at these addresses.
fn secured(args: &Args, https: &[Address]) -> Secured {
    let public = args.policy.public.public_url.as_ref();
    let announced = public.filter(|url| url.scheme() == "https").and_then(url::Url::port_or_known_default);
    let bound = || {
        https.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            _ => None,
        })
    };
    Secured {
        hsts: args.hsts,
        port: announced.or_else(bound).unwrap_or(443),
        host: public.and_then(|url| url.host_str().map(str::to_owned)),
    }
}

/// The sockets of each worker: one of its own on each address, or all the same one where systemd passed it.
fn listen(args: &Args, count: usize) -> Result<Vec<Vec<TcpListener>>, Error> {
    let options = TcpOptions { backlog: args.backlog, ..TcpOptions::default() };
    let mut listeners: Vec<Vec<TcpListener>> = (0..count).map(|_| Vec::new()).collect();
    for address in &args.policy.public.listen {
        for (sockets, socket) in listeners.iter_mut().zip(address.listen_each(count, &options)?) {
            match socket {
                Listener::Tcp(socket) => sockets.push(socket),
                Listener::Unix(_) => return Err(Error::NotTcp(address.clone())),
            }
        }
    }
    Ok(listeners)
}

fn registry(front: &Arc<Front>) -> Registry {
    let mut registry = Registry::default();
    service::metrics::register_process(&mut registry);
    panics::register(&mut registry, "linerate_links_panics");
    front.metrics.register(&mut registry);
    let mut gauge = |name, help, read: fn(&Front) -> u64| {
        let front = Arc::clone(front);
        Family::new(name, help).with(&[], move || read(&front) as f64).register(&mut registry);
    };
    gauge("linerate_links_cache_entries", "Codes in the cache", |front| front.cache.len());
    gauge("linerate_links_cache_bytes", "Memory the cache is reckoned at", |front| front.cache.bytes());
    gauge("linerate_links_clicks_pending", "Clicks counted and not yet in the store", |front| {
        front.ledger.pending()
    });
    gauge("linerate_links_write_queue_depth", "Writes that wait for the database", |front| {
        front.store.depth() as u64
    });
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

/// Says on stdout where everything is, as one line of JSON where asked. Where nobody listens, the server runs all the same.
fn greet(
    json: bool,
    plain: &[Address],
    https: &[Address],
    admin: Option<&Address>,
    database: &std::path::Path,
    token: Option<&str>,
) {
    let public = || {
        plain.iter().map(|address| (address, "http")).chain(https.iter().map(|address| (address, "https")))
    };
    if json {
        let url = |(address, scheme): (&Address, &str)| match address {
            Address::Tcp(address) => format!("{scheme}://{address}/"),
            other => other.to_string(),
        };
        let links: Vec<_> = public().map(url).collect();
        let admin = admin.map(|admin| url((admin, "http")));
        let greeting =
            serde_json::json!({ "links": links, "admin": admin, "database": database, "token": token });
        let _ = writeln!(std::io::stdout(), "{greeting}");
        return;
    }
    let mut lines: String = public().map(|(address, scheme)| address.line("links", scheme)).collect();
    lines.extend(admin.map(|admin| admin.line("admin", "http")));
    lines.push_str(&format!("database  {}\n", database.display()));
    if let Some(token) = token {
        lines.push_str(&format!("token     {token}\n"));
    }
    let _ = std::io::stdout().write_all(lines.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_end_because_they_were_told_to_are_no_failure() {
        for _ in 0..20 {
            let shutdown = Shutdown::new();
            shutdown.trigger();
            supervise(&shutdown, || true).expect("a clock");
            assert!(shutdown.outcome().is_ok());
        }
        let shutdown = Shutdown::new();
        supervise(&shutdown, || true).expect("a clock");
        assert!(shutdown.outcome().is_err(), "one that ends by itself is");
    }
}
