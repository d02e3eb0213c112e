//! `linerate console`: runs the listeners, from start to drain.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use listener::tls::Stores;
use listener::{Config, Endpoint, Listener, Tls};
use service::access_log::{self, AccessLog, AccessLogArgs, AuditLog, AuditLogArgs, Destination};
use service::admin::Admin;
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::limits::seconds;
use service::logs::{self, LogArgs};
use service::metrics::{BuildArgs, Registry};
use service::panics;
use service::proxies::ProxyArgs;
use service::ready::{self, Readiness, STUCK, Watch};
use service::settings::{self, ConfigArgs};
use service::shutdown::Shutdown;
use service::socket::{Address, distinct};
use service::tls::{AdminTlsArgs, TlsArgs};
use tokio::sync::watch;

use crate::app::{self, App, Known};
use crate::audit::AuditFile;
use crate::csrf::Secret;
use crate::imports::Imports;
use crate::live::Live;
use crate::machine::Machine;
use crate::overview::Sampler;
use crate::profiles::Profiles;
use crate::routes;
use crate::session::{Grant, SessionLifetime, Sessions};
use crate::sign_in_limits::SignInLimits;
use crate::single_sign_on::{self, OidcArgs};
use crate::upstream::Upstream;

/// How long the pages' listener goes on at shutdown for writes that are running, before it drains. systemd grants 10 s
/// beyond the drain (`TimeoutStopSec`).
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Arguments of `linerate console`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where to serve the console over HTTP/1.1: IP:PORT, :PORT, unix:PATH or systemd:NAME; may be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8110", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// TLS.
    #[command(flatten)]
    pub tls: TlsArgs,

    /// The proxies in front.
    #[command(flatten)]
    pub proxies: ProxyArgs,

    /// Where health and metrics of the console itself are answered: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Address>,

    /// The admin listener's TLS.
    #[command(flatten)]
    pub admin_tls: AdminTlsArgs,

    /// The file with more settings.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// The admin address of linerate-links: IP:PORT or unix:PATH, or none if it does not run.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081", help_heading = "Services")]
    pub links: Where,

    /// The admin address of linerate-files, or none.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8091", help_heading = "Services")]
    pub files: Where,

    /// The admin address of linerate-api, or none.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8101", help_heading = "Services")]
    pub api: Where,

    /// Where linerate-api serves its users: an address of its --listen, or none.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8100", help_heading = "Services")]
    pub users: Where,

    /// The file of linerate-links' --audit-log, shown to users whose key may write at all domains.
    #[arg(long, value_name = "FILE", help_heading = "Services")]
    pub links_audit: Option<PathBuf>,

    /// The file of linerate-api's --audit-log, which also shows a user's history.
    #[arg(long, value_name = "FILE", help_heading = "Services")]
    pub api_audit: Option<PathBuf>,

    /// A key of linerate-links that everybody who reaches the console uses without signing in. Only for a console on
    /// loopback or a Unix socket that is used by local names. Give it in a variable or a credential, so that it is on
    /// no disk and no list of processes shows it.
    #[arg(long, value_name = "KEY", value_parser = settings::secret::<Key>(), hide_env_values = true,
          help_heading = "Access")]
    pub token: Option<Key>,

    /// A key of linerate-api for the same console, if that requires keys.
    #[arg(long, value_name = "KEY", value_parser = settings::secret::<Key>(), hide_env_values = true, requires = "token",
          help_heading = "Access")]
    pub api_token: Option<Key>,

    /// If linerate-api requires no keys: shows its users to everybody who is signed in, and lets them change users.
    /// Without it, only people with a key of linerate-api may.
    #[arg(long, help_heading = "Access")]
    pub users_without_key: bool,

    /// Where people without a key sign in.
    #[command(flatten)]
    pub oidc: OidcArgs,

    /// The accepted hosts if everybody on this machine may use the console.
    #[command(flatten, next_help_heading = "Access")]
    pub hosts: AllowedHostArgs,

    /// How long a session lasts at most, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 12 * 3600, help_heading = "Access",
          value_parser = clap::value_parser!(u64).range(1..=30 * 86_400))]
    pub session_life: u64,

    /// How long a session lasts without a request for a page, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, help_heading = "Access",
          value_parser = clap::value_parser!(u64).range(1..=30 * 86_400))]
    pub session_idle: u64,

    /// The profile that doctor compares the machine with. Without one, it finds only what is wrong on any machine.
    #[arg(long, value_name = "FILE", env = "LINERATE_PROFILE")]
    pub profile: Option<PathBuf>,

    /// What performs the actions that need more rights than the console has: placing queues, and profiling processes.
    /// unix:PATH is the socket of linerate console-helper; self means the console itself, as its own user; none leaves
    /// them to a shell. Pages offer them to users whose key may write at all domains.
    #[arg(long, value_name = "HELPER", default_value = "none", help_heading = "Access")]
    pub helper: HelperAt,

    /// What writes files for the page of files: unix:PATH, the socket of linerate files-writer, or none, which only
    /// shows files. The page is for users whose key may write at all domains. linerate-files must have --admin-browse
    /// to show its root.
    #[arg(long, value_name = "ADDR", default_value = "none", help_heading = "Access")]
    pub files_writer: Where,

    /// The audit log of what the helper and the writer of files did, and for whom.
    #[command(flatten)]
    pub audit_log: AuditLogArgs,

    /// Connections at once. Further ones replace those that have stalled for longest.
    #[arg(long, value_name = "N", default_value = "256", help_heading = "Resources")]
    pub max_connections: NonZero<u32>,

    /// How long a shutdown waits for requests that are still being answered, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, help_heading = "Time",
          value_parser = seconds(0))]
    pub drain_timeout: u64,

    /// The access log.
    #[command(flatten)]
    pub access_log: AccessLogArgs,

    /// The host's generation.
    #[command(flatten)]
    pub build: BuildArgs,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// A service's admin address, if it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where(Option<Address>);

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            text => match text.parse() {
                Ok(Address::Activated(_)) => {
                    Err("nobody can connect to systemd:NAME; expected IP:PORT or unix:PATH".into())
                }
                Ok(Address::Tcp(address)) if address.port() == 0 => Err("nobody listens at port 0".into()),
                // An unspecified address is reached over loopback.
                Ok(Address::Tcp(address)) if address.ip().is_unspecified() => {
                    Ok(Self(Some(Address::Tcp((std::net::Ipv4Addr::LOCALHOST, address.port()).into()))))
                }
                Ok(address) => Ok(Self(Some(address))),
                Err(error) => Err(format!("{error}, or none")),
            },
        }
    }
}

/// The program that performs actions that need more rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperAt {
    /// No program.
    None,
    /// The console itself, as its own user.
    Own,
    /// `linerate console-helper`, on this Unix socket.
    Unix(PathBuf),
}

impl FromStr for HelperAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("unix:")) {
            ("none", _) => Ok(Self::None),
            ("self", _) => Ok(Self::Own),
            (_, Some(path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            _ => Err("expected unix:/PATH, self or none"),
        }
    }
}

/// A key of links. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl FromStr for Key {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if plain { Ok(Self(text.to_owned())) } else { Err("a key has visible ASCII characters alone") }
    }
}

/// Why the console does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Everybody would have access from everywhere.
    #[error(
        "with --token nobody signs in, so the console may be at loopback addresses and Unix sockets alone, and {0} is none: \
         leave --token out"
    )]
    Open(Address),
    /// Nobody could sign in without linerate-links.
    #[error("without linerate-links (--links none) nobody can sign in, since its keys let people in")]
    NobodyCan,
    /// A listener failed.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// The access log can't be opened.
    #[error(transparent)]
    Log(#[from] access_log::OpenError),
    /// The issuer for signing in can't be used.
    #[error(transparent)]
    Oidc(#[from] single_sign_on::OpenError),
    /// The system has no randomness.
    #[error("cannot make a secret: {0}")]
    Randomness(getrandom::Error),
    /// Signals or threads failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether other arguments could have helped.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Open(_)
                | Self::NobodyCan
                | Self::Oidc(_)
                | Self::Log(_)
                | Self::Listener(listener::Error::Tls(_))
        )
    }
}

/// Runs the console until it is told to stop. Prints its addresses once it answers.
///
/// # Errors
/// When it cannot start, or an essential part ends unexpectedly.
pub fn run(args: &Args, machine: Arc<dyn Machine>) -> Result<(), Error> {
    logs::init(&args.logs);
    panics::install();
    let access_log = AccessLog::open(&args.access_log, "console")?;
    let audit_log = AuditLog::open(&args.audit_log, "console")?;
    distinct(args.listen.iter().chain(&args.tls.tls_listen).chain(&args.admin))?;
    let public = Listener::new(public(args, access_log.clone()))?;
    let local = public.addresses().iter().all(is_local);
    if let (Some(_), Some(address)) = (&args.token, public.addresses().iter().find(|at| !is_local(at))) {
        return Err(Error::Open(address.clone()));
    }
    if args.token.is_none() && args.links.0.is_none() {
        return Err(Error::NobodyCan);
    }
    let admin = args.admin.clone().map(|address| Config::private(address).by_tls(&args.admin_tls.files));
    let admin = admin.map(Listener::new).transpose()?;
    let certificates = Stores::default()
        .with("public", public.certificates())
        .with("admin", admin.as_ref().and_then(Listener::certificates));
    let shutdown = {
        let (certificates, access_log, audit_log) =
            (certificates.clone(), access_log.clone(), audit_log.clone());
        Shutdown::on_signals_and_hangup(move || {
            certificates.reload();
            if let Some(log) = &access_log {
                log.reopen();
            }
            if let Some(log) = &audit_log {
                log.reopen();
            }
        })?
    };
    let readiness = Readiness::new();
    let mut registry = Registry::default();
    service::metrics::register_process(&mut registry);
    service::metrics::register_build(&mut registry, "console", &args.build);
    panics::register(&mut registry, "linerate_console_panics");
    public.metrics().register(&mut registry, "linerate_console");
    certificates.register(&mut registry, "linerate_console");
    if let Some(log) = &access_log {
        log.register(
            &mut registry,
            ["linerate_console_access_log_dropped", "linerate_console_spans_dropped"],
        );
    }
    if let Some(log) = &audit_log {
        let names = [
            "linerate_console_audit_log_lines",
            "linerate_console_audit_log_waits",
            "linerate_console_audit_log_lost",
        ];
        log.register(&mut registry, names);
    }

    let plain = args.listen.len();
    let addresses = public.addresses().iter().enumerate();
    let mut lines: String = addresses
        .map(|(index, address)| address.line("console", if index < plain { "http" } else { "https" }))
        .collect();
    // Without a sign-in, pages of any site could use the console by DNS rebinding, so the host name is checked.
    let checked = local || !args.hosts.allowed_hosts.is_empty();
    let hosts = checked.then(|| AllowedHosts::new(&args.hosts, public.addresses()));
    let app = Arc::new(app(args, machine, hosts, audit_log.clone(), shutdown.clone())?);
    let mut watched = vec![public.heartbeats().watch(STUCK)];
    let (writes, stopping) = (app.writes.clone(), Shutdown::new());
    let mut threads = vec![public.start_boxed("console", routes::router(app), &stopping)?];
    if let Some(admin) = admin {
        watched.push(admin.heartbeats().watch(STUCK));
        lines.extend(admin.addresses().iter().map(|address| address.line("admin", args.admin_tls.scheme())));
        let mut pages = Admin::new(readiness.clone(), registry);
        if let [Address::Tcp(at)] = admin.addresses()
            && at.ip().is_loopback()
        {
            pages = pages.only_for(AllowedHosts::new(&args.hosts, admin.addresses()));
        }
        threads.push(admin.start_boxed("console-admin", pages, &shutdown)?);
    }
    readiness.set_ready();
    // The console runs even if nobody reads the addresses.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    ready::watchdog(move || watched.iter_mut().all(Watch::alive))?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        tokio::select! {
            () = shutdown.wait() => {}
            // The listener ended by itself.
            () = stopping.wait() => shutdown.fail(),
        }
        readiness.set_stopping();
        // The listener doesn't wait for writes whose clients have left, but their lines in the audit log need its
        // thread.
        let _ = tokio::time::timeout(LAST_WRITES, writes.closed()).await;
    });
    stopping.trigger();
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a listener ended in a panic");
        }
    }
    if let Some(log) = &access_log {
        log.finish();
    }
    if let Some(log) = &audit_log {
        log.finish();
    }
    stopping.outcome()?;
    Ok(shutdown.outcome()?)
}

fn app(
    args: &Args,
    machine: Arc<dyn Machine>,
    hosts: Option<AllowedHosts>,
    audit_log: Option<AuditLog>,
    shutdown: Shutdown,
) -> Result<App, Error> {
    let upstream = |name, at: &Where| at.0.clone().map(|address| Upstream { name, address });
    let links = upstream("links", &args.links);
    let files = upstream("files", &args.files);
    let others = [files.clone(), upstream("api", &args.api)];
    let own = args.audit_log.audit_log.as_ref().and_then(|to| match to {
        Destination::File(path) => Some(path.clone()),
        Destination::Stdout => None,
    });
    let audits = [("links", &args.links_audit), ("api", &args.api_audit), ("console", &own)].into_iter();
    let open = args.token.clone();
    let (may_all, clicks) = app::answer_caches();
    let life = SessionLifetime {
        whole: Duration::from_secs(args.session_life),
        idle: Duration::from_secs(args.session_idle),
    };
    Ok(App {
        sampler: Sampler::new(links.iter().cloned().chain(others.into_iter().flatten()).collect()),
        links,
        files,
        writer: upstream("what writes files", &args.files_writer),
        users: upstream("api", &args.users),
        users_without_key: args.users_without_key,
        audits: audits
            .filter_map(|(service, path)| Some(AuditFile { service, path: path.clone()? }))
            .collect(),
        open: open.map(|key| {
            let api = args.api_token.clone().map(|key| key.0);
            Grant { links: Some(key.0), api, user: None }
        }),
        hosts,
        machine,
        sessions: Sessions::new(life),
        single_sign_on: args.oidc.open()?,
        session_seconds: args.session_life,
        secret: Secret::new().map_err(Error::Randomness)?,
        sign_in_limits: SignInLimits::default(),
        live: Live::default(),
        may_all,
        clicks,
        shutdown,
        known: Known::default(),
        audit_log,
        writes: watch::Sender::new(()),
        profiles: Profiles::default(),
        imports: Imports::default(),
    })
}

/// Whether only this machine can connect to an address. A socket from systemd may have any address.
fn is_local(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => address.ip().is_loopback(),
        Address::Unix(_) => true,
        Address::Activated(_) => false,
    }
}

/// The configuration of the pages' listener: one worker, for the few operators of a box.
fn public(args: &Args, access_log: Option<AccessLog>) -> Config {
    let plain = args.listen.iter().cloned().map(Endpoint::plain);
    Config {
        endpoints: plain.chain(args.tls.tls_listen.iter().cloned().map(Endpoint::tls)).collect(),
        workers: Some(NonZero::<usize>::MIN),
        tls: Tls::of(args.tls.files()),
        proxies: (&args.proxies).into(),
        access_log,
        limits: listener::Limits {
            connections: args.max_connections.get() as usize,
            make_room: true,
            // Room for a file in a plain form, or a piece of one. Files to import are the largest.
            body_bytes: 9 << 20,
            body_bytes_total: 24 << 20,
            answer_bytes_total: 32 << 20,
            ..listener::Limits::default()
        },
        http3: args.tls.http3(),
        drain: Duration::from_secs(args.drain_timeout),
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_at_addresses_that_one_can_connect_to() {
        for (text, address) in [
            ("127.0.0.1:8081", Ok(Some("127.0.0.1:8081"))),
            ("unix:/run/a", Ok(Some("unix:/run/a"))),
            (":8081", Ok(Some("127.0.0.1:8081"))),
            ("none", Ok(None)),
            ("systemd:admin", Err(())),
            ("127.0.0.1:0", Err(())),
            ("example", Err(())),
        ] {
            let parsed = text.parse::<Where>().map(|at| at.0.map(|address| address.to_string()));
            assert_eq!(parsed.map_err(drop), address.map(|at| at.map(str::to_owned)), "{text}");
        }
    }
}
