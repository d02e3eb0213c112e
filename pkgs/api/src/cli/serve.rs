//! `serve`: runs the listeners, from start to drain.

use std::io::Write;
use std::num::NonZero;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use listener::tls::Stores;
use listener::{Config, Endpoint, Listener, Tls};
use oidc::jwt::{self, JwtArgs};
use service::access_log::{self, AccessLog, AccessLogArgs, AuditLog, AuditLogArgs};
use service::admin::AdminArgs;
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::handover::{self, HandoverArgs, Takeover};
use service::limits::{AddressRateArgs, ConnectionArgs, TimeoutArgs, seconds};
use service::logs::{self, LogArgs};
use service::metrics::{BuildArgs, Registry};
use service::panics;
use service::permissions;
use service::proxies::ProxyArgs;
use service::ready::{self, Readiness, STUCK, Watch};
use service::settings::{self, ConfigArgs};
use service::shutdown::Shutdown;
use service::socket::{Address, distinct};
use service::tls::{H2cArgs, TlsArgs};
use service::workers::WorkerArgs;

use super::database::{self, DatabaseArgs};
use super::{Cli, Command};
use crate::http::access::cors::{self, Cors};
use crate::http::{Api, Auditor, Front, Logs, Settings, admin, routes};
use crate::json::object::Unknown;
use crate::store;
use crate::user::Limits;
use crate::users::{DatabaseUrl, Options};

/// How long the database's writer may take for one transaction. No usable disk takes longer.
const WRITE_STUCK: Duration = Duration::from_secs(120);

/// The longest timeout of the database, in milliseconds: what PostgreSQL takes as `statement_timeout`.
const LONGEST: u64 = 2_147_483_647;

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where to serve the API over HTTP/1.1: IP:PORT, :PORT, unix:PATH or systemd:NAME; may be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8100", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// HTTP/2 without TLS.
    #[command(flatten)]
    pub h2c: H2cArgs,

    /// TLS.
    #[command(flatten)]
    pub tls: TlsArgs,

    /// The proxies in front.
    #[command(flatten)]
    pub proxies: ProxyArgs,

    /// The admin listener.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// The file with more settings.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// Where users are kept.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Whether keys are required.
    #[arg(long, value_name = "WHO", value_enum, default_value_t = Auth::Auto, help_heading = "Access")]
    pub auth: Auth,

    /// The issuer's tokens that are accepted if keys are required.
    #[command(flatten)]
    pub jwt: JwtArgs,

    /// The accepted hosts if keys are not required.
    #[command(flatten, next_help_heading = "Access")]
    pub hosts: AllowedHostArgs,

    /// An origin whose pages may send requests, or *; may be repeated. Read again at SIGHUP.
    #[arg(long = "cors-origin", value_name = "ORIGIN", value_delimiter = ',', value_parser = cors::origin,
          help_heading = "Access")]
    pub cors_origins: Vec<String>,

    /// What to do with unknown fields of a user. Read again at SIGHUP.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Unknown::Refuse, help_heading = "Users")]
    pub unknown_fields: Unknown,

    /// Refuses to change or delete a user unless If-Match names the version, or * for any. A batch can only use *. Read
    /// again at SIGHUP.
    #[arg(long, help_heading = "Users")]
    pub require_if_match: bool,

    /// The largest user, in bytes. Read again at SIGHUP.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().user_bytes, help_heading = "Users",
          value_parser = RangedU64ValueParser::<usize>::new().range(1024..=1 << 20))]
    pub max_user_bytes: usize,

    /// The most users in a batch. Read again at SIGHUP.
    #[arg(long, value_name = "N", default_value_t = Limits::default().batch, help_heading = "Users",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub max_batch: usize,

    /// The largest batch, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().batch_bytes, help_heading = "Users",
          value_parser = RangedU64ValueParser::<usize>::new().range(1024..=256 << 20))]
    pub max_batch_bytes: usize,

    /// Memory for cached users, in bytes; 0 for no cache.
    #[arg(long, value_name = "BYTES", default_value_t = 128 << 20, help_heading = "Database")]
    pub cache_bytes: u64,

    /// With PostgreSQL: how outdated a cached read may be, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Database",
          value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub staleness: u64,

    /// With PostgreSQL: how many seconds cached reads continue while none of its hosts is usable, from when it was last
    /// heard of. Others may write meanwhile, so such answers say in Cache-Status how old they may be.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Database")]
    pub cached_while_down: u64,

    /// With PostgreSQL: connections for writes and lists. Lists and counts take at most half of them.
    #[arg(long, value_name = "N", default_value = "10", help_heading = "Database")]
    pub connections: NonZero<u32>,

    /// How long a request waits for such a connection, in milliseconds; then it is answered 503.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "Database",
          value_parser = clap::value_parser!(u64).range(..=LONGEST))]
    pub acquire_timeout: u64,

    /// With PostgreSQL: how long it may take to answer, in milliseconds; then a request is answered 503. A file has 5 s
    /// for a list.
    #[arg(long, value_name = "MS", default_value_t = 5000, help_heading = "Database",
          value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    pub database_timeout: u64,

    /// The number of threads that serve.
    #[command(flatten)]
    pub workers: WorkerArgs,

    /// Memory for request bodies that are being received, of all connections together, in bytes; further ones are
    /// answered 503. Large answers have the same limit, and writes that wait for the database have twice as much. At
    /// least one of each always has room.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, help_heading = "Resources")]
    pub max_bodies_bytes: u64,

    /// Limits of clients' connections.
    #[command(flatten)]
    pub limits: ConnectionArgs,

    /// The rate limit of one address.
    #[command(flatten)]
    pub rate: AddressRateArgs,

    /// Timeouts of clients.
    #[command(flatten)]
    pub timeouts: TimeoutArgs<30>,

    /// Timeout of a request's body, however slowly it drips, in seconds; then it is answered 408.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Time", value_parser = seconds(1))]
    pub body_timeout: u64,

    /// The access log.
    #[command(flatten)]
    pub access_log: AccessLogArgs,

    /// The audit log.
    #[command(flatten)]
    pub audit_log: AuditLogArgs,

    /// With PostgreSQL: adds the traceparent of requests (W3C Trace Context) that are recorded, by their flag 01, to
    /// each of their statements, as a comment (sqlcommenter). Such a statement is planned again, and such a read shares
    /// no round trip. For clients, or a proxy in front, that set the flag with moderation.
    #[arg(long, help_heading = "Database")]
    pub trace_database: bool,

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

/// Whether keys are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// No keys if every address is loopback or a Unix socket, and then only for local names; otherwise keys.
    Auto,
    /// Keys are required.
    Keys,
    /// No keys are required, whatever the addresses are.
    None,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// A query failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The process that served until now could not hand over.
    #[error(transparent)]
    Handover(#[from] handover::Error),
    /// A listener could not start.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// The access log or the audit log cannot be opened.
    #[error(transparent)]
    Log(#[from] access_log::OpenError),
    /// The options for the issuer's tokens cannot be used.
    #[error(transparent)]
    Jwt(#[from] jwt::OpenError),
    /// There are no API keys, so no client could use the service.
    #[error(
        "there are no API keys in {database}, and they are asked for where not every address is loopback: make one with 'linerate-api key add NAME --scope write{arguments}'{further}, or say --auth none"
    )]
    NoKeys {
        /// The database without keys.
        database: DatabaseUrl,
        /// The arguments with which a command uses it.
        arguments: String,
        /// What else the command needs.
        further: &'static str,
    },
    /// Signals or threads failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether other arguments could have helped.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoKeys { .. }
            | Self::Handover(_)
            | Self::Listener(listener::Error::Tls(_))
            | Self::Jwt(_)
            | Self::Log(_) => true,
            Self::Database(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// The state that SIGHUP changes.
struct Reloaded {
    api: Api,
    certificates: Stores,
    access_log: Option<AccessLog>,
    audit_log: Option<AuditLog>,
}

/// Runs the server until it is told to stop.
///
/// # Errors
/// When it cannot start, or an essential part ends unexpectedly.
pub fn run(args: Args) -> Result<(), Error> {
    logs::init(&args.logs);
    panics::install();
    let reloaded: Arc<OnceLock<Reloaded>> = Arc::default();
    let shutdown = {
        let reloaded = Arc::clone(&reloaded);
        Shutdown::on_signals_and_hangup(move || reloaded.get().into_iter().for_each(reload))?
    };
    let readiness = Readiness::new();
    let access_log = AccessLog::open(&args.access_log, "api")?;
    let audit_log = AuditLog::open(&args.audit_log, "api")?;
    let tokens = args.jwt.open()?;
    distinct(args.listen.iter().chain(&args.tls.tls_listen).chain(&args.admin.admin))?;
    let takeover = Takeover::begin(&args.handover, "api")?;
    let public = Listener::new(public(&args, access_log.clone()))?;
    let admin =
        args.admin.admin.clone().map(|address| Config::private(address).by_tls(&args.admin.tls.files));
    let admin = admin.map(Listener::new).transpose()?;
    let (runtime, users) = database::open(&options(&args))?;
    if let DatabaseUrl::Sqlite(path) = args.database.url() {
        permissions::restrict(&path);
    }
    let local = public.addresses().iter().all(is_local);
    let keys = match args.auth {
        Auth::Auto => !local,
        Auth::Keys => true,
        Auth::None => false,
    };
    if keys && tokens.is_none() && runtime.block_on(users.list_keys())?.is_empty() {
        return Err(no_keys(&args));
    }

    // If the writer has ended, restarting the process is faster than repairing the writer.
    runtime.spawn({
        let (users, shutdown) = (users.clone(), shutdown.clone());
        async move {
            users.broken().await;
            tracing::error!("what works on the database has ended by itself");
            shutdown.fail();
        }
    });

    let auditor = audit_log.clone().map(|log| Arc::new(Auditor::new(log, runtime.handle().clone())));
    let logs = Logs { access: access_log.is_some(), audit: auditor.clone(), trace: args.trace_database };
    let api = Api::logging(users.clone(), (keys, tokens.clone()), settings(&args), logs);
    let mut front = Front::new(api.clone(), routes::router()).holding(args.max_bodies_bytes);
    if let Some(rate) = args.rate.address_rate {
        front = front.limiting_addresses(rate.get(), args.rate.address_burst.get());
    }
    // If everybody may use the service from everywhere, web pages may too, unless hosts are given.
    if !keys && (local || !args.hosts.allowed_hosts.is_empty()) {
        front = front.only_for(AllowedHosts::new(&args.hosts, public.addresses()));
    }
    let certificates = Stores::default()
        .with("public", public.certificates())
        .with("admin", admin.as_ref().and_then(Listener::certificates));
    let _ = reloaded.set(Reloaded {
        api: api.clone(),
        certificates: certificates.clone(),
        access_log: access_log.clone(),
        audit_log: audit_log.clone(),
    });
    let mut registry = Registry::default();
    service::metrics::register_process(&mut registry);
    service::metrics::register_build(&mut registry, "api", &args.build);
    panics::register(&mut registry, "linerate_api_panics");
    public.metrics().register(&mut registry, "linerate_api");
    certificates.register(&mut registry, "linerate_api");
    api.metrics().register(&mut registry);
    users.register(&mut registry);
    if let Some(log) = &access_log {
        log.register(&mut registry, ["linerate_api_access_log_dropped", "linerate_api_spans_dropped"]);
    }
    if let Some(log) = &audit_log {
        let names = ["linerate_api_audit_lines", "linerate_api_audit_waited", "linerate_api_audit_lost"];
        log.register(&mut registry, names);
    }

    let plain = args.listen.len();
    let addresses = public.addresses().iter().enumerate();
    let mut lines: String = addresses
        .map(|(index, address)| address.line("api", if index < plain { "http" } else { "https" }))
        .collect();
    let mut watched = vec![public.heartbeats().watch(STUCK), users.heartbeats().watch(WRITE_STUCK)];
    // Everything that can fail has succeeded. Until the previous process has drained, two processes use the database,
    // and both databases allow that. Each process learns of the other's writes, and with SQLite one waits for the
    // other.
    takeover.complete(&shutdown)?;
    let mut threads = vec![public.start("api", front, &shutdown)?];
    if let Some(admin) = admin {
        watched.push(admin.heartbeats().watch(STUCK));
        lines.extend(admin.addresses().iter().map(|address| address.line("admin", args.admin.tls.scheme())));
        let mut pages = admin::admin(users, readiness.clone(), registry);
        if let [Address::Tcp(at)] = admin.addresses()
            && at.ip().is_loopback()
        {
            pages = pages.only_for(AllowedHosts::new(&args.hosts, admin.addresses()));
        }
        threads.push(admin.start_boxed("api-admin", pages, &shutdown)?);
    }
    if !keys {
        tracing::info!("no API keys are asked for");
    }
    // A program that reads the addresses from standard output must find the server ready.
    readiness.set_ready();
    // The server runs even if nobody reads this.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    ready::watchdog(move || watched.iter_mut().all(Watch::alive))?;

    runtime.block_on(shutdown.wait());
    readiness.set_stopping();
    // The listeners end once their connections have drained.
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a listener ended in a panic");
        }
    }
    if let Some(log) = &access_log {
        log.finish();
    }
    if let Some(auditor) = &auditor {
        runtime.block_on(auditor.finish());
    }
    Ok(shutdown.outcome()?)
}

/// Reads the settings and certificates again, and reopens the logs. If that fails, nothing changes.
fn reload(reloaded: &Reloaded) {
    if let Some(log) = &reloaded.access_log {
        log.reopen();
    }
    if let Some(log) = &reloaded.audit_log {
        log.reopen();
    }
    match settings::try_parse::<Cli>("api", "serve") {
        Ok(Cli { command: Command::Serve(args) }) => {
            reloaded.api.set(settings(&args));
            tracing::info!("settings were read again");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "settings stay as they are"),
    }
    reloaded.certificates.reload();
}

/// The error that there are no keys, with the command that makes one in the database of this server.
fn no_keys(args: &Args) -> Error {
    let database = args.database.url();
    let (arguments, further) = match (&database, &args.config.config) {
        // The default depends on the environment and the user, who may be others in the operator's shell.
        (DatabaseUrl::Sqlite(path), _) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            (format!(" --database-url {}", quoted(&format!("sqlite:{}", path.display()))), "")
        }
        // The URL may contain a password, which must not be repeated.
        (DatabaseUrl::Postgres(_), Some(config)) => (
            format!(" --config {}", quoted(&config.display().to_string())),
            " (with the same LINERATE_API_DATABASE_URL if the URL is not in there)",
        ),
        (DatabaseUrl::Postgres(_), None) => {
            (String::new(), " with the same LINERATE_API_DATABASE_URL or --database-url")
        }
    };
    Error::NoKeys { database, arguments, further }
}

/// A text as a shell takes it for one word.
fn quoted(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() && !letter.is_ascii_alphanumeric() && !"/._-:+,@%=".contains(letter) {
            word.push('\\');
        }
        word.push(letter);
    }
    word
}

/// Whether only this machine can connect to the address. A socket from systemd may have any address.
fn is_local(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => address.ip().is_loopback(),
        Address::Unix(_) => true,
        Address::Activated(_) => false,
    }
}

/// The settings that can change while the server runs.
fn settings(args: &Args) -> Settings {
    Settings {
        limits: Limits {
            batch: args.max_batch,
            user_bytes: args.max_user_bytes,
            batch_bytes: args.max_batch_bytes,
            unknown: args.unknown_fields,
        },
        cors: Cors::new(&args.cors_origins),
        conditional_writes: args.require_if_match,
    }
}

fn options(args: &Args) -> Options {
    let defaults = Options::new(args.database.url());
    Options {
        cache_bytes: args.cache_bytes,
        staleness: Duration::from_millis(args.staleness),
        cached_while_down: Duration::from_secs(args.cached_while_down),
        connections: args.connections,
        acquire_timeout: Duration::from_millis(args.acquire_timeout),
        timeout: Duration::from_millis(args.database_timeout),
        workers: args.workers.workers.unwrap_or(defaults.workers),
        // What was made of a body takes several times its size.
        write_bytes: args.max_bodies_bytes.saturating_mul(2),
        ..defaults
    }
}

/// The configuration of the API's listener.
fn public(args: &Args, access_log: Option<AccessLog>) -> Config {
    let plain = args.listen.iter().cloned().map(if args.h2c.h2c { Endpoint::h2c } else { Endpoint::plain });
    Config {
        endpoints: plain.chain(args.tls.tls_listen.iter().cloned().map(Endpoint::tls)).collect(),
        workers: args.workers.workers,
        tls: Tls::of(args.tls.files()),
        proxies: (&args.proxies).into(),
        access_log,
        limits: listener::Limits {
            connections: args.limits.max_connections,
            connections_per_address: args.limits.per_address(),
            head_time: args.timeouts.head(),
            handshake_time: args.timeouts.head(),
            idle: args.timeouts.idle(),
            body_bytes: args.max_batch_bytes.max(args.max_user_bytes) as u64,
            body_bytes_total: args.max_bodies_bytes,
            body_time: Duration::from_secs(args.body_timeout),
            ..listener::Limits::default()
        },
        http3: args.tls.http3(),
        drain: args.timeouts.drain(),
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use clap::Parser;

    use super::super::{Cli, finish, run};
    use super::quoted;

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The database of the process that is to lose its writer.
    const DOOMED: &str = "LINERATE_TEST_DOOMED_DATABASE";

    /// A process, which is killed when dropped.
    struct Process(Child);

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_shell_takes_what_is_quoted_for_one_word() {
        for text in ["sqlite:/var/lib/linerate-api/api.db", "sqlite:/a b/$(c)'\"d\\;~é&.db"] {
            let output = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(text))).output();
            assert_eq!(String::from_utf8_lossy(&output.expect("a shell").stdout), text);
        }
        assert_eq!(quoted("sqlite:/var/lib/x-y_z/api.db"), "sqlite:/var/lib/x-y_z/api.db");
    }

    /// No external event is known to make the writer panic, so in this process it panics after its first transaction.
    /// The process is this test program, started again.
    #[test]
    fn the_process_ends_for_all_to_see_when_its_writer_does() {
        if let Ok(database) = env::var(DOOMED) {
            crate::faults::doom_writer();
            let flags = ["--listen", "127.0.0.1:0", "--workers", "1", "--database-url", &database];
            let cli = Cli::parse_from([&["linerate-api", "serve"], &flags[..]].concat());
            std::process::exit(finish(run(cli)).into());
        }
        let directory = tempfile::tempdir().expect("a directory");
        let this = concat!(module_path!(), "::the_process_ends_for_all_to_see_when_its_writer_does");
        let this = this.split_once("::").map_or(this, |(_, path)| path);
        let child = Command::new(env::current_exe().expect("a path"))
            .args(["--exact", this, "--nocapture"])
            .env(DOOMED, format!("sqlite:{}", directory.path().join("users.db").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Process(child.expect("it runs"));
        let (mut output, mut errors) = (process.0.stdout.take().expect("a pipe"), process.0.stderr.take());
        let mut said = String::new();
        let address = loop {
            // The address is complete once white space follows it.
            let start = said.find("http://").map(|at| &said[at + 7..]);
            if let Some((address, _)) = start.and_then(|rest| rest.split_once(char::is_whitespace)) {
                break address.trim_end_matches('/').to_owned();
            }
            let mut buffer = [0; 1024];
            let count = output.read(&mut buffer).expect("a pipe");
            assert!(count > 0, "it does not serve: {said}");
            said.push_str(&String::from_utf8_lossy(&buffer[..count]));
        };
        let user = r#"{"email":"a@b.example","name":"n"}"#;
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let length = user.len();
        let head = "POST /v1/users HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        write!(stream, "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{user}")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 201 "), "the first transaction is whole: {answer}");

        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = process.0.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on without its writer");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut log = String::new();
        errors.as_mut().expect("a pipe").read_to_string(&mut log).expect("text");
        assert_eq!(status.code(), Some(1), "{log}");
        for line in ["what works on the database has ended by itself", "error: a worker ended by itself"] {
            assert!(log.contains(line), "{line:?} is not in {log}");
        }
    }
}
