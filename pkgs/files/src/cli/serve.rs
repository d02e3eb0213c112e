//! `serve`: the listeners, from start to drain.

use std::io::Write;
use std::net::TcpListener;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use service::logs::{self, LogArgs};
use service::ready::{self, Readiness};
use service::shutdown::Shutdown;
use service::socket::{self, Address, Listener, TcpOptions};
use service::workers;

use crate::disk::Disk;
use crate::engine::Engine;
use crate::front::limits::Limits;
use crate::front::{Front, Settings};
use crate::site::root::Symlinks;
use crate::site::{self, Options, Site};

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory whose files are served.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub root: PathBuf,

    /// Where files are served by HTTP/1.1: IP:PORT, :PORT or systemd:NAME; may be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// A TOML file with settings, named as the flags without their dashes in front.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A TOML file with rules for paths, and pages for errors; read again at SIGHUP.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,

    /// How bytes get from files into sockets.
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,

    /// Which symbolic links are followed.
    #[arg(long, value_enum, default_value_t = Symlinks::Beneath, help_heading = "Files")]
    pub symlinks: Symlinks,

    /// Serves names with a dot in front too, not only .well-known.
    #[arg(long, help_heading = "Files")]
    pub hidden: bool,

    /// Lists directories without an index.html, where no rule says otherwise.
    #[arg(long, help_heading = "Files")]
    pub listing: bool,

    /// Does not look for .br, .zst and .gz beside a file.
    #[arg(long, help_heading = "Files")]
    pub no_precompressed: bool,

    /// The charset of texts; empty for none.
    #[arg(long, value_name = "NAME", default_value = "utf-8", help_heading = "Files", value_parser = charset)]
    pub charset: String,

    /// How long a file counts as what its name stands for where the kernel tells of no change, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Files")]
    pub revalidate: u64,

    /// Threads that serve. Default: one for each CPU this process may use.
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub workers: Option<NonZero<usize>>,

    /// Files all workers together keep open.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Resources",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub open_files: usize,

    /// Memory for the bytes of small files, of all workers together, in bytes; 0 keeps none.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, help_heading = "Resources")]
    pub memory: usize,

    /// Connections of all workers together; further ones are closed at once.
    #[arg(long, value_name = "N", default_value_t = 16_384, help_heading = "Resources",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_connections: usize,

    /// Connections that may wait to be accepted; net.core.somaxconn caps it.
    #[arg(long, value_name = "N", default_value_t = TcpOptions::default().backlog, help_heading = "Resources",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub backlog: i32,

    /// Connections of one address; further ones are closed at once. Default: no limit.
    #[arg(long, value_name = "N", help_heading = "Limits of one address")]
    pub address_connections: Option<NonZero<u32>>,

    /// Requests a second of one address; further ones are answered 429. Default: no limit.
    #[arg(long, value_name = "N", help_heading = "Limits of one address")]
    pub address_rate: Option<NonZero<u32>>,

    /// Requests one address may have at once before its rate counts.
    #[arg(long, value_name = "N", default_value = "100", help_heading = "Limits of one address")]
    pub address_burst: NonZero<u32>,

    /// How long a request's head may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Time",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub head_timeout: u64,

    /// How long a connection may be idle, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 75, help_heading = "Time",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_timeout: u64,

    /// How long a client may take nothing of an answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Time",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub write_timeout: u64,

    /// How long answers under way have at shutdown, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Time")]
    pub drain_timeout: u64,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is to be served.
    #[error(transparent)]
    Site(#[from] site::Error),
    /// A listener.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// `--listen` names a Unix socket.
    #[error("files are served on TCP only, not on {0}")]
    NotTcp(Address),
    /// Signals or threads.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The longest file whose bytes are kept in memory. Beyond, copying them costs more than asking the kernel.
const MEMORY_MAX_BYTES: u64 = 4 * 1024;

/// RFC 9110, section 8.3.2: a token; those of use have no other characters.
fn charset(name: &str) -> Result<String, &'static str> {
    let valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte));
    if valid { Ok(name.to_owned()) } else { Err("no name of a charset") }
}

/// Runs the server until it is told to stop.
pub(super) fn run(args: Args) -> Result<(), Error> {
    logs::init(&args.logs);
    let options = options(&args);
    let reloaded: Arc<OnceLock<Arc<Front>>> = Arc::default();
    let shutdown = {
        let (front, options) = (Arc::clone(&reloaded), options.clone());
        Shutdown::on_signals_and_hangup(move || {
            if let Some(front) = front.get() {
                reload(front, &options);
            }
        })?
    };
    let readiness = Readiness::new();
    let count = workers::count(args.workers);
    let site = Site::load(&options)?;
    let listeners = listen(&args, count)?;
    let addresses: Vec<_> = listeners[0].iter().filter_map(|socket| socket.local_addr().ok()).collect();

    let limits = Limits::new(args.address_rate, args.address_burst, args.address_connections);
    let front = Front::new(settings(&args, count), site, Disk::start()?, limits, shutdown.clone(), count)?;
    let _ = reloaded.set(Arc::clone(&front));
    let threads = front.start(listeners, workers::pinnable(count))?;

    let lines: String = addresses.iter().map(|address| format!("files     http://{address}/\n")).collect();
    // Where nobody listens, the server runs all the same.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    readiness.set_ready();
    ready::watchdog(|| true)?;

    tokio::runtime::Builder::new_current_thread().build()?.block_on(shutdown.wait());
    readiness.set_stopping();
    front.wake();
    // The workers end when their connections have drained.
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a worker ended in a panic");
        }
    }
    Ok(())
}

/// Reads rules and pages again; what cannot be read leaves everything as it was.
fn reload(front: &Front, options: &Options) {
    match Site::load(options) {
        Ok(site) => {
            front.replace(site);
            tracing::info!("rules and pages were read again");
        }
        Err(error) => {
            tracing::error!(error = service::exit::chain(&error), "rules and pages stay as they were");
        }
    }
}

fn options(args: &Args) -> Options {
    Options {
        root: args.root.clone(),
        rules: args.rules.clone(),
        symlinks: args.symlinks,
        hidden: args.hidden,
        listing: args.listing,
        precompressed: !args.no_precompressed,
        charset: args.charset.clone(),
    }
}

/// The settings of each of `count` workers.
fn settings(args: &Args, count: usize) -> Settings {
    Settings {
        engine: args.engine,
        open_files: args.open_files.div_ceil(count),
        memory: args.memory / count,
        memory_max: MEMORY_MAX_BYTES,
        revalidate: Duration::from_millis(args.revalidate),
        connections: args.max_connections.div_ceil(count),
        head_timeout: Duration::from_secs(args.head_timeout),
        idle_timeout: Duration::from_secs(args.idle_timeout),
        write_timeout: Duration::from_secs(args.write_timeout),
        drain_timeout: Duration::from_secs(args.drain_timeout),
    }
}

/// The sockets of each worker: one of its own on each address, or all the same one where systemd passed it.
fn listen(args: &Args, count: usize) -> Result<Vec<Vec<TcpListener>>, Error> {
    let shared = TcpOptions { backlog: args.backlog, reuse_port: true, ..TcpOptions::default() };
    let mut listeners: Vec<Vec<TcpListener>> = (0..count).map(|_| Vec::new()).collect();
    for address in &args.listen {
        let mut address = address.clone();
        if let Address::Tcp(_) = address {
            // Sharing the port is for our own workers: another server on it is an error, not a partner.
            drop(address.listen(&TcpOptions { reuse_port: false, ..shared })?);
        }
        let mut passed: Option<TcpListener> = None;
        for sockets in &mut listeners {
            let socket = match &passed {
                Some(socket) => socket.try_clone()?,
                None => match address.listen(&shared)? {
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
