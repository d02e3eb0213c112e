//! `serve`: runs the listeners, from start to drain.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use listener::WithFastPath;
use listener::metrics::Counts;
use listener::tls::{Store, Stores};
use origin::Origin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service::access_log::{self, AccessLog, AccessLogArgs};
use service::address_limits::AddressLimits;
use service::admin::{Admin, AdminArgs};
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::descriptors::HighWater;
use service::handover::{self, HandoverArgs, Takeover};
use service::limits::{AddressRateArgs, BacklogArgs, ConnectionArgs, TimeoutArgs, seconds};
use service::logs::{self, LogArgs};
use service::metrics::{BuildArgs, Family, Registry};
use service::panics;
use service::proxies::ProxyArgs;
use service::ready::{self, Readiness, STUCK, Watch};
use service::settings::ConfigArgs;
use service::shutdown::Shutdown;
use service::socket::{self, Address, Listener, TcpOptions};
use service::tls::{CertificateFiles, TlsArgs};
use service::workers::{self, WorkerArgs};

use super::origin::OriginArgs;
use crate::browse::Browser;
use crate::disk::backend::DiskBackend;
use crate::disk::threads::DiskThreads;
use crate::event_loop::{self, ktls::Handover};
use crate::http::head::MAX_HEAD_BYTES;
use crate::site::root::Symlinks;
use crate::site::{self, Options, Site};
use crate::tls::service::TlsService;
use crate::transfer::engine::Engine;
use crate::worker::settings::Settings;
use crate::worker::shared::SharedState;

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory whose files are served.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub root: PathBuf,

    /// Where to serve HTTP/1.1: IP:PORT, :PORT or systemd:NAME; may be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// TLS.
    #[command(flatten)]
    pub tls: TlsArgs,

    /// The proxies in front.
    #[command(flatten)]
    pub proxies: ProxyArgs,

    /// Encrypts in this process even if the kernel could (kTLS: HTTP/1.1 over TLS 1.3, with the module `tls`).
    #[arg(long)]
    pub no_ktls: bool,

    /// The admin listener.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Shows on the admin listener what lies below the root (/browse), and how each path would be answered and by which
    /// rules (/answer). Everybody who reaches that listener sees this, including protected files. The console uses it.
    #[arg(long)]
    pub admin_browse: bool,

    /// The file with more settings.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// A TOML file with rules for paths and with error pages; read again at SIGHUP.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,

    /// How bytes get from files into sockets.
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,

    /// How files are read that are not in memory.
    #[arg(long, value_enum, default_value_t = DiskBackend::Auto)]
    pub disk: DiskBackend,

    /// Files of object storage.
    #[command(flatten)]
    pub origin: OriginArgs,

    /// Which symbolic links are followed.
    #[arg(long, value_enum, default_value_t = Symlinks::Beneath, help_heading = "Files")]
    pub symlinks: Symlinks,

    /// Also serves names that start with a dot, not only .well-known.
    #[arg(long, help_heading = "Files")]
    pub hidden: bool,

    /// Lists directories without an index.html, unless a rule says otherwise.
    #[arg(long, help_heading = "Files")]
    pub listing: bool,

    /// Does not look for .br, .zst and .gz versions of a file.
    #[arg(long, help_heading = "Files")]
    pub no_precompressed: bool,

    /// The charset of text files; empty for none.
    #[arg(long, value_name = "NAME", default_value = "utf-8", help_heading = "Files", value_parser = charset)]
    pub charset: String,

    /// How long an open file is used without another lookup if the kernel reports no change, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Files")]
    pub revalidate: u64,

    /// The number of threads that serve.
    #[command(flatten)]
    pub workers: WorkerArgs,

    /// The most files that all workers together keep open.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Resources",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub open_files: usize,

    /// Memory for the content of small files, for all workers together, in bytes; 0 keeps none.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, help_heading = "Resources")]
    pub memory: usize,

    /// Kernel memory for copies of frequently requested files, in pipes, in bytes; 0 keeps none.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20, help_heading = "Resources")]
    pub pipe_memory: u64,

    /// Memory for copies of files that are frequently requested over TLS, in bytes; 0 keeps none.
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20, help_heading = "Resources")]
    pub tls_memory: u64,

    /// Memory for what io_uring reads from files that are not in memory, for all workers together, in bytes; each has
    /// at least one MiB.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20, help_heading = "Resources")]
    pub disk_memory: usize,

    /// Memory for compressed versions of files that rules request (`compress`), in bytes; 0 makes none.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20, help_heading = "Resources")]
    pub variant_memory: u64,

    /// Limits of clients' connections.
    #[command(flatten)]
    pub limits: ConnectionArgs,

    /// The limit of waiting connections.
    #[command(flatten)]
    pub backlog: BacklogArgs,

    /// The rate limit of one address.
    #[command(flatten)]
    pub rate: AddressRateArgs,

    /// Timeouts of clients.
    #[command(flatten)]
    pub timeouts: TimeoutArgs<30>,

    /// How long a client may take nothing of an answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Time",
          value_parser = seconds(1))]
    pub write_timeout: u64,

    /// The access log.
    #[command(flatten)]
    pub access_log: AccessLogArgs,

    /// The process to take over from.
    #[command(flatten)]
    pub handover: HandoverArgs,

    /// The host's generation.
    #[command(flatten)]
    pub build: BuildArgs,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root or the rules cannot be used.
    #[error(transparent)]
    Site(#[from] site::Error),
    /// The origin or its cache cannot be used.
    #[error(transparent)]
    Origin(#[from] origin::StartError),
    /// A flag that only applies to directories.
    #[error("{0}: an origin has none")]
    NotOfOrigin(&'static str),
    /// The previous process did not hand over.
    #[error(transparent)]
    Handover(#[from] handover::Error),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// `--listen` names a Unix socket.
    #[error("files are served on TCP only, not on {0}")]
    NotTcp(Address),
    /// The TLS or the admin listener cannot start.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// `--disk uring`, but the kernel has no io_uring for this process.
    #[error("the kernel has no io_uring for this process: {0}")]
    NoRing(#[source] std::io::Error),
    /// The access log cannot be opened.
    #[error(transparent)]
    AccessLog(#[from] access_log::OpenError),
    /// Signals or threads failed, or a worker ended unexpectedly.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The longest file whose bytes are kept in memory. For longer ones, copying costs more than asking the kernel.
const MEMORY_MAX_BYTES: u64 = 4 * 1024;

/// File descriptors that are reserved for what connections are sent: files, listed directories, pipes. If none is free,
/// a request waits, so there need not be one for each of thousands.
const SPARE_DESCRIPTORS: u64 = 4096;

/// File descriptors of a plain worker, and of a TLS worker: epoll instances, inotify, an io_uring, and eventfds.
const WORKER_DESCRIPTORS: [u64; 2] = [5, 10];

/// RFC 9110, section 8.3.2: a token; charsets in use have no other characters.
fn charset(name: &str) -> Result<String, &'static str> {
    let valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte));
    if valid { Ok(name.to_owned()) } else { Err("no name of a charset") }
}

/// The state that SIGHUP changes.
struct Reloaded {
    shared: Arc<SharedState>,
    certificates: Stores,
    /// The store with its certificates: those from flags come first, and then those of the sites.
    shown: Option<(Arc<Store>, Vec<CertificateFiles>)>,
}

/// Runs the server until it is told to stop.
pub fn run(args: Args) -> Result<(), Error> {
    logs::init(&args.logs);
    panics::install();
    raise_file_limit();
    let origin = start_origin(&args)?;
    let options = options(&args, origin.clone());
    let reloaded: Arc<OnceLock<Reloaded>> = Arc::default();
    let shutdown = {
        let (reloaded, options) = (Arc::clone(&reloaded), options.clone());
        Shutdown::on_signals_and_hangup(move || {
            if let Some(reloaded) = reloaded.get() {
                reload(reloaded, &options);
                reloaded.certificates.reload();
            }
        })?
    };
    let readiness = Readiness::new();
    let count = args.workers.count();
    let site = Site::load(&options)?;
    let named = [args.tls.files(), site.certificates()].concat();
    socket::distinct(args.listen.iter().chain(&args.tls.tls_listen).chain(&args.admin.admin))?;
    let takeover = Takeover::begin(&args.handover, "files")?;
    let listeners = listen(&args, count)?;
    let addresses: Vec<_> = listeners[0].iter().filter_map(|socket| socket.local_addr().ok()).collect();
    let limits = args.rate.limits(&args.limits);
    let log = AccessLog::open(&args.access_log, "files")?;
    let high_water = high_water(&args, count);
    // TLS workers have rings too.
    let rings = if args.tls.tls_listen.is_empty() { count } else { 2 * count };
    let (ring, refused) = args.disk.ring(args.disk_memory / rings).map_err(Error::NoRing)?;
    let io = [("engine", args.engine.name()), ("disk", DiskBackend::name(ring.is_some()))];
    let settings = settings(&args, count, high_water, ring);
    let shared = SharedState::new(
        settings,
        site,
        DiskThreads::start()?,
        log,
        limits.clone(),
        shutdown.clone(),
        count,
    )?;
    let secure = (!args.tls.tls_listen.is_empty())
        .then(|| listener::Listener::new(tls(&args, &named, limits, &shared)))
        .transpose()?;
    let admin = args
        .admin
        .admin
        .clone()
        .map(|address| {
            listener::Listener::new(listener::Config::private(address).by_tls(&args.admin.tls.files))
        })
        .transpose()?;
    let certificates = Stores::default()
        .with("public", secure.as_ref().and_then(listener::Listener::certificates))
        .with("admin", admin.as_ref().and_then(listener::Listener::certificates));

    let shown = secure
        .as_ref()
        .and_then(listener::Listener::certificates)
        .map(|store| (Arc::clone(store), args.tls.files().to_vec()));
    let _ = reloaded.set(Reloaded { shared: Arc::clone(&shared), certificates: certificates.clone(), shown });
    let mut watched = vec![shared.heartbeats().watch(STUCK)];
    watched
        .extend([&secure, &admin].into_iter().flatten().map(|listener| listener.heartbeats().watch(STUCK)));
    // Everything that can fail has succeeded.
    takeover.complete(&shutdown)?;
    if let Some(error) = refused {
        tracing::warn!(%error, "no io_uring: files that are not in memory are read by threads");
    }
    let [(_, engine), (_, disk)] = &io;
    tracing::info!(%engine, %disk, "how files are sent, and what reads those that are not in memory");
    let mut threads = event_loop::start(&shared, listeners, workers::pinnable(count))?;

    let mut lines: String =
        addresses.iter().map(|&address| Address::Tcp(address).line("files", "http")).collect();
    let mut registry = Registry::default();
    service::metrics::register_process(&mut registry);
    service::metrics::register_build(&mut registry, "files", &args.build);
    panics::register(&mut registry, "linerate_files_panics");
    shared.metrics.register(&mut registry);
    let described = "How files are sent, and what reads those that are not in memory";
    let io = io.each_ref().map(|(name, value)| (*name, value.as_str()));
    Family::new("linerate_files_io_info", described).with(&io, || 1.0).register(&mut registry);
    certificates.register(&mut registry, "linerate_files");
    if let Some(origin) = &origin {
        origin.register(&mut registry);
    }
    if let Some(log) = &shared.access_log {
        log.register(&mut registry, ["linerate_files_access_log_dropped", "linerate_files_spans_dropped"]);
    }
    shared.variants.register(&mut registry);
    shared.pipe_copies.register(
        &mut registry,
        "linerate_files_pipe_bytes",
        "Bytes of often asked files that are kept in pipes",
    );
    shared.memory_copies.register(
        &mut registry,
        "linerate_files_tls_copy_bytes",
        "Bytes of files often asked by TLS that are kept in memory",
    );
    let counted = [Arc::clone(&shared.metrics) as Arc<dyn Counts>]
        .into_iter()
        .chain(secure.as_ref().map(|secure| Arc::new(secure.metrics().clone()) as Arc<dyn Counts>));
    listener::metrics::register(&counted.collect::<Vec<_>>(), &mut registry, "linerate_files");
    if let Some(secure) = secure {
        lines.extend(secure.addresses().iter().map(|address| address.line("secure", "https")));
        if secure.offloads() {
            tracing::info!("the kernel encrypts HTTP/1.1 over TLS 1.3");
        }
        let service = TlsService::new(Arc::clone(&shared));
        let service = WithFastPath { fast: service.clone(), service };
        threads.push(secure.start("files-tls", service, &shutdown)?);
    }
    if let Some(admin) = admin {
        lines.extend(admin.addresses().iter().map(|address| address.line("admin", args.admin.tls.scheme())));
        let mut pages = Admin::new(readiness.clone(), registry);
        if args.admin_browse {
            if let [Address::Tcp(at)] = admin.addresses()
                && at.ip().is_loopback()
            {
                // Pages of other sites must not read names of files by DNS rebinding.
                let taken = AllowedHostArgs::default();
                pages = pages.only_for(AllowedHosts::new(&taken, admin.addresses()));
            }
            let browser = Browser::new(Arc::clone(&shared));
            pages = pages.beside(move |target| browser.clone().answer(target));
        }
        threads.push(admin.start_boxed("files-admin", pages, &shutdown)?);
    }
    ready::drains_for(args.timeouts.drain());
    // Readiness first: a program that reads from the output where the server listens then finds it ready.
    readiness.set_ready();
    // The server runs even if nobody reads this.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    let waiting = Arc::clone(&shared);
    ready::watchdog(move || watched.iter_mut().all(Watch::alive) && waiting.is_waited_for())?;

    tokio::runtime::Builder::new_current_thread().build()?.block_on(shutdown.wait());
    readiness.set_stopping();
    shared.wake();
    // The workers end once their connections have drained.
    for thread in threads {
        let name = thread.thread().name().unwrap_or("?").to_owned();
        if let Err(payload) = thread.join() {
            panics::Panic::new(payload).log("worker", &name);
            shutdown.fail();
        }
    }
    if let Some(log) = &shared.access_log {
        log.finish();
    }
    Ok(shutdown.outcome()?)
}

/// The TLS listener.
fn tls(
    args: &Args,
    certificates: &[CertificateFiles],
    limits: Option<Arc<AddressLimits>>,
    shared: &Arc<SharedState>,
) -> listener::Config {
    listener::Config {
        endpoints: args.tls.tls_listen.iter().cloned().map(listener::Endpoint::tls).collect(),
        workers: args.workers.workers,
        tls: listener::Tls::of(certificates),
        proxies: (&args.proxies).into(),
        limits: listener::Limits {
            connections: args.limits.max_connections,
            head_bytes: MAX_HEAD_BYTES,
            head_time: args.timeouts.head(),
            handshake_time: args.timeouts.head(),
            idle: args.timeouts.idle(),
            write_stall: Duration::from_secs(args.write_timeout),
            ..listener::Limits::default()
        },
        high_water: shared.settings.high_water,
        // An address's connections to both listeners count together.
        addresses: limits,
        offload: (!args.no_ktls).then(|| Arc::new(Handover::new(shared)) as Arc<dyn listener::Offload>),
        early_hints: Some(Arc::new(TlsService::new(Arc::clone(shared)))),
        refusals: Some(Arc::new(TlsService::new(Arc::clone(shared)))),
        access_log: shared.access_log.clone(),
        http3: args.tls.http3(),
        drain: args.timeouts.drain(),
        ..listener::Config::default()
    }
}

/// Raises the limit of file descriptors to the maximum: each connection needs one, and each file.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Reads rules and pages again. If that fails, nothing changes.
fn reload(Reloaded { shared, shown, .. }: &Reloaded, options: &Options) {
    if let Some(log) = &shared.access_log {
        log.reopen();
    }
    let replaced = Site::load(options).map_err(Error::from).and_then(|site| {
        if let Some((store, flags)) = shown {
            let named = [flags, site.certificates()].concat();
            store.replace_files(&named).map_err(listener::Error::from)?;
        }
        Ok(site)
    });
    match replaced {
        Ok(site) => {
            shared.replace(site);
            tracing::info!("rules and pages were read again");
        }
        Err(error) => {
            tracing::error!(error = service::exit::chain(&error), "rules and pages stay as they were");
        }
    }
}

/// The origin, if there is one. It is not contacted yet.
fn start_origin(args: &Args) -> Result<Option<Origin>, Error> {
    let Some(settings) = args.origin.settings() else { return Ok(None) };
    if args.listing {
        return Err(Error::NotOfOrigin("--listing lists directories"));
    }
    if args.symlinks != Symlinks::Beneath {
        return Err(Error::NotOfOrigin("--symlinks is about links in directories"));
    }
    Ok(Some(Origin::start(settings)?))
}

fn options(args: &Args, origin: Option<Origin>) -> Options {
    Options {
        root: args.root.clone(),
        rules: args.rules.clone(),
        symlinks: args.symlinks,
        hidden: args.hidden,
        listing: args.listing,
        precompressed: !args.no_precompressed,
        charset: args.charset.clone(),
        origin,
    }
}

/// The number of file descriptors from which `count` workers of each listener stop accepting.
fn high_water(args: &Args, count: usize) -> HighWater {
    let [plain, tls] = WORKER_DESCRIPTORS;
    // One socket for each TCP address, and one for UDP.
    let tls = if args.tls.tls_listen.is_empty() { 0 } else { tls + 2 * args.tls.tls_listen.len() as u64 };
    HighWater::keeping(SPARE_DESCRIPTORS, count as u64 * (plain + tls))
}

/// The settings of each of `count` workers.
fn settings(args: &Args, count: usize, high_water: HighWater, ring: Option<usize>) -> Settings {
    Settings {
        engine: args.engine,
        ring,
        open_files: args.open_files.div_ceil(count),
        memory: args.memory / count,
        memory_max: MEMORY_MAX_BYTES,
        pipe_memory: args.pipe_memory,
        tls_memory: args.tls_memory,
        variant_memory: args.variant_memory,
        revalidate: Duration::from_millis(args.revalidate),
        proxies: (&args.proxies).into(),
        connections: args.limits.max_connections.div_ceil(count),
        high_water,
        head_timeout: args.timeouts.head(),
        idle_timeout: args.timeouts.idle(),
        write_timeout: Duration::from_secs(args.write_timeout),
        drain_timeout: args.timeouts.drain(),
    }
}

/// Each worker's sockets: its own for each address, or a shared one if systemd passed it or the previous process had
/// fewer workers. If that had more, its sockets are distributed.
fn listen(args: &Args, count: usize) -> Result<Vec<Vec<TcpListener>>, Error> {
    let options = TcpOptions { backlog: args.backlog.backlog, ..TcpOptions::default() };
    let mut listeners: Vec<Vec<TcpListener>> = (0..count).map(|_| Vec::new()).collect();
    for address in &args.listen {
        if matches!(address, Address::Unix(_)) {
            return Err(Error::NotTcp(address.clone()));
        }
        for (index, socket) in address.listen_each(count, &options)?.into_iter().enumerate() {
            match socket {
                Listener::Tcp(socket) => listeners[index % count].push(socket),
                Listener::Unix(_) => return Err(Error::NotTcp(address.clone())),
            }
        }
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_so_long_that_a_clock_overflows() {
        for (flag, least) in [
            ("--write-timeout", 1),
            ("--origin-ttl", 0),
            ("--origin-missing-ttl", 0),
            ("--origin-connect-timeout", 1),
            ("--origin-head-timeout", 1),
            ("--origin-block-timeout", 1),
        ] {
            let takes = |seconds: u64| {
                let command = <Args as clap::Args>::augment_args(clap::Command::new("files"));
                command.try_get_matches_from(["files".to_owned(), format!("{flag}={seconds}")]).is_ok()
            };
            assert!(takes(least) && !takes(u64::MAX), "{flag}");
            assert!(least == 0 || !takes(0), "{flag}");
        }
    }
}
