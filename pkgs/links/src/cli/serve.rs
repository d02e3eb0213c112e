//! `serve`: runs the public and the admin listener, from start to drain.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use listener::tls::Stores;
use listener::{Listener, WithFastPath};
use oidc::jwt::JwtArgs;
use service::access_log::{AccessLog, AccessLogArgs, AuditLog, AuditLogArgs};
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::handover::{HandoverArgs, Takeover, needs_a_start_anew};
use service::limits::{BacklogArgs, ConnectionArgs, TimeoutArgs, seconds};
use service::logs::{self, LogArgs};
use service::metrics::{BuildArgs, Family, Registry};
use service::panics;
use service::permissions;
use service::proxies::ProxyArgs;
use service::ready::{self, Readiness, STUCK, Watch};
use service::shutdown::Shutdown;
use service::socket::{Address, distinct};
use service::tls::{AdminTlsArgs, H2cArgs, TlsArgs};
use service::workers::WorkerArgs;
use tokio::sync::Notify;

use super::database::{DatabaseArgs, Location};
use super::policy::PolicyArgs;
use super::serve_error::Error;

use crate::admin;
use crate::cache::Cache;
use crate::clicks::ClickBuffer;
use crate::front::{
    Attempts, Front, HttpService, Limits, Metrics, Retention, Settings, TlsPolicy, UnknownHost,
};
use crate::geoip::GeoIp;
use crate::store::{self, Change, Options, PostgresOptions, Scope, Store};

/// The name of the token that `--print-token` renews.
const CONSOLE_TOKEN: &str = "console";

/// How long the database's writer may take for one transaction. No usable disk takes longer.
const WRITE_STUCK: Duration = Duration::from_secs(120);

/// How long PostgreSQL may take to answer.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to check that the threads run.
const LOOK: Duration = Duration::from_millis(250);

/// How long the admin listener goes on at shutdown for writes that are running. That and its drain are less than the
/// service asks of systemd: the longest drain, and 10 s.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// How often to check during the drain.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// HTTP/2 without TLS.
    #[command(flatten, next_help_heading = "Public listener")]
    pub h2c: H2cArgs,

    /// TLS.
    #[command(flatten)]
    pub tls: TlsArgs,

    /// Redirects visitors without TLS to the same address with TLS, by 308: to the port of --public-url if that is
    /// https, otherwise to that of the first --tls-listen.
    #[arg(long, requires = "tls_listen", help_heading = "Public listener")]
    pub https_redirect: bool,

    /// Makes browsers that used TLS use only TLS for this long (Strict-Transport-Security), in seconds. Default: not
    /// sent.
    #[arg(long, value_name = "SECONDS", requires = "tls_listen", help_heading = "Public listener")]
    pub hsts: Option<u32>,

    /// The proxies in front of the public listeners.
    #[command(flatten)]
    pub proxies: ProxyArgs,

    /// Where the API, health and metrics are answered: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin: Address,

    /// The admin listener's TLS.
    #[command(flatten)]
    pub admin_tls: AdminTlsArgs,

    /// The issuer's tokens that the admin listener accepts.
    #[command(flatten)]
    pub jwt: JwtArgs,

    /// The hosts for which the admin listener accepts requests.
    #[command(flatten)]
    pub allowed_hosts: AllowedHostArgs,

    /// Which database.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Prints a new admin token named "console", which replaces the previous one of that name. Without this flag, one
    /// is printed only if the database has no token yet.
    #[arg(long)]
    pub print_token: bool,

    /// The number of threads that answer redirects.
    #[command(flatten)]
    pub workers: WorkerArgs,

    /// Memory for the cache of links, in bytes; 0 turns it off.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, help_heading = "Resources")]
    pub cache_bytes: u64,

    /// Limits of visitors' connections.
    #[command(flatten)]
    pub limits: ConnectionArgs,

    /// The limit of waiting connections.
    #[command(flatten)]
    pub backlog: BacklogArgs,

    /// How many days before today keep their clicks by day; older days are merged and stay in all other sums. 0:
    /// forever.
    #[arg(long, value_name = "DAYS", default_value_t = 400, help_heading = "Resources",
          value_parser = clap::value_parser!(u32).range(..=36_525))]
    pub click_retention: u32,

    /// How many days before today also keep their clicks by hour; older hours are deleted, and stay in all sums.
    #[arg(long, value_name = "DAYS", default_value_t = 14, help_heading = "Resources",
          value_parser = clap::value_parser!(u32).range(1..=92))]
    pub click_hour_retention: u32,

    /// A file in MaxMind DB format that maps addresses to countries, such as GeoLite2-Country.mmdb. Clicks are then
    /// also counted by the visitor's country; the address is not stored. Read once, at the start.
    #[arg(long, value_name = "FILE", help_heading = "Resources")]
    pub geoip: Option<PathBuf>,

    /// Writes that may wait for the database; further ones are answered 503.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Resources",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub write_queue: usize,

    /// With PostgreSQL: how outdated a cached link may be after a write of another server, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, help_heading = "PostgreSQL",
          value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub staleness: u64,

    /// With PostgreSQL: how many seconds cached links are still answered while none of its hosts accepts writes, from
    /// when it was last heard of. Others may write meanwhile, so such answers say in Cache-Status how old they may be.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, help_heading = "PostgreSQL",
          value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub cached_while_down: u64,

    /// With PostgreSQL: connections for writes and lists. Each worker also has one or two for cache misses.
    #[arg(long, value_name = "N", default_value = "10", help_heading = "PostgreSQL")]
    pub connections: NonZero<u32>,

    /// With PostgreSQL: adds the traceparent of requests (W3C Trace Context) that are recorded, by their flag 01, to
    /// each of their statements, as a comment (sqlcommenter). Such a statement is planned again, and such a miss shares
    /// no round trip; cache hits send no statement. For callers that set the flag with moderation.
    #[arg(long, help_heading = "PostgreSQL")]
    pub trace_database: bool,

    /// Timeouts of visitors.
    #[command(flatten)]
    pub timeouts: TimeoutArgs<10>,

    /// How long a body sent to the admin listener may take, in seconds. A file to import may take longer, as long as it
    /// makes progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Time",
          value_parser = seconds(1))]
    pub body_timeout: u64,

    /// Where / of the default domain redirects to. Default: a page that says what this service is.
    #[arg(long, value_name = "URL", help_heading = "Public listener")]
    pub root_target: Option<url::Url>,

    /// What answers requests for a host that is no domain's: the default domain, or 404. With not-found, the default
    /// domain answers only at the host of --public-url. Only the Host field counts, whatever a proxy adds.
    #[arg(long, value_name = "WHAT", default_value = "default", help_heading = "Public listener",
          value_parser = ["default", "not-found"], requires_if("not-found", "public_url"))]
    pub unknown_host: String,

    /// Where /favicon.ico redirects to. Default: 404.
    #[arg(long, value_name = "URL", help_heading = "Public listener")]
    pub favicon_target: Option<url::Url>,

    /// A file with the text of /robots.txt. Default: crawlers may follow links.
    #[arg(long, value_name = "FILE", help_heading = "Public listener")]
    pub robots: Option<PathBuf>,

    /// Sends a small page with each redirect, for clients that do not follow redirects.
    #[arg(long, help_heading = "Public listener")]
    pub redirect_body: bool,

    /// How long browsers may cache a redirect, in seconds. Cached visits are not counted. Links that expire, have a
    /// click limit or a password are never cached, nor is where a domain sends those who ask for an unknown code.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, help_heading = "Public listener")]
    pub redirect_max_age: u32,

    /// The rules for codes and targets.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// The access log of the public and the admin listener.
    #[command(flatten)]
    pub access_log: AccessLogArgs,

    /// The audit log.
    #[command(flatten)]
    pub audit_log: AuditLogArgs,

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

/// The default text of `/robots.txt`.
const ROBOTS: &str = "User-agent: *\nDisallow:\n";

/// Runs the server until it is told to stop.
pub fn run(mut args: Args, json: bool) -> Result<(), Error> {
    logs::init(&args.logs);
    panics::install();
    let access_log = AccessLog::open(&args.access_log, "links")?;
    let audit_log = AuditLog::open(&args.audit_log, "links")?;
    let reloaded: Arc<OnceLock<Stores>> = Arc::default();
    let shutdown = {
        let (reloaded, logs) = (Arc::clone(&reloaded), (access_log.clone(), audit_log.clone()));
        Shutdown::on_signals_and_hangup(move || {
            logs.0.iter().for_each(AccessLog::reopen);
            logs.1.iter().for_each(AuditLog::reopen);
            reloaded.get().into_iter().for_each(Stores::reload);
        })?
    };
    let readiness = Readiness::new();
    let count = args.workers.count();
    let settings = settings(&args)?;
    let geoip = args
        .geoip
        .as_deref()
        .map(|path| GeoIp::open(path).map_err(|source| Error::GeoIp { path: path.to_owned(), source }));
    let geoip = geoip.transpose()?;
    let tokens = args.jwt.open()?;

    let metrics = Arc::new(Metrics::new(count));
    distinct(args.policy.public.listen.iter().chain(&args.tls.tls_listen).chain([&args.admin]))?;
    let takeover = Takeover::begin(&args.handover, "links")?;
    let public = Listener::new(listening(&args, &metrics, access_log.clone()))?;
    let timeouts = admin::Timeouts {
        head: args.timeouts.head(),
        body: Duration::from_secs(args.body_timeout),
        idle: args.timeouts.idle(),
    };
    let requests = admin::Requests::default();
    let operators = admin::config(args.admin.clone(), timeouts, &requests).by_tls(&args.admin_tls.files);
    let operators = Listener::new(listener::Config { access_log: access_log.clone(), ..operators })?;
    let certificates =
        Stores::default().with("public", public.certificates()).with("admin", operators.certificates());
    let _ = reloaded.set(certificates.clone());
    let (plain, https) = public.addresses().split_at(args.policy.public.listen.len());
    let (plain, https) = (plain.to_vec(), https.to_vec());
    args.policy.public.listen = plain.clone();
    args.policy.also_at(&https);

    let location = args.database.location();
    let path = PathBuf::from(location.to_string());
    let failed = |source| Error::Store { path: path.clone(), source };
    // Two processes may use the database at once, as the command line does while a server runs. But two versions with
    // different schemas may not.
    if let Location::File(file) = &location
        && takeover.is_under_way()
        && file.exists()
        && !store::is_current(file).map_err(failed)?
    {
        needs_a_start_anew("this version of the program migrates the database");
        return Err(Error::Migrates(path));
    }
    let (store, cache) = open(&args, location, count).map_err(failed)?;

    let front = Arc::new(Front {
        settings,
        store: store.clone(),
        cache,
        click_buffer: ClickBuffer::default(),
        geoip,
        attempts: Attempts::default(),
        metrics,
        shutdown: shutdown.clone(),
    });
    let mut registry = registry(&front, public.metrics(), &args.build);
    certificates.register(&mut registry, "linerate_links");
    if let Some(log) = &access_log {
        log.register(&mut registry, ["linerate_links_access_log_dropped", "linerate_links_spans_dropped"]);
    }
    if let Some(log) = &audit_log {
        let names =
            ["linerate_links_audit_lines", "linerate_links_audit_waited", "linerate_links_audit_lost"];
        log.register(&mut registry, names);
    }
    let mut watches = vec![public.heartbeats().watch(STUCK), store.watch(WRITE_STUCK)];
    let service = HttpService::new(Arc::clone(&front), count, secured(&args, &https)).map_err(failed)?;
    let service = WithFastPath { fast: service.clone(), service };
    let base = args.policy.public.base();
    let state = admin::State::new(store.clone(), &base, readiness.clone(), requests, registry);
    let mut state =
        state.map_err(failed)?.with_timeouts(timeouts).vouched_for_by(tokens).logging(audit_log.clone());
    if let [Address::Tcp(at)] = operators.addresses()
        && at.ip().is_loopback()
    {
        state = state.only_for(AllowedHosts::new(&args.allowed_hosts, operators.addresses()));
    }
    watches.push(operators.heartbeats().watch(STUCK));
    let admin_address = operators.addresses().first().cloned();
    let token = token(&store, args.print_token).map_err(failed)?;
    // Everything that can fail has succeeded, so the old process can end.
    takeover.complete(&shutdown)?;
    let public = public.start("links", service, &shutdown)?;
    let (writes_ended, admin_shutdown) = (state.writes_ended(), Shutdown::new());
    let admin = operators.start_boxed("links-admin", admin::service(state), &admin_shutdown)?;

    // The server must be ready before it prints its addresses, since a program that reads them may connect at once.
    readiness.set_ready();
    let admin_address = admin_address.as_ref().map(|address| (address, args.admin_tls.scheme()));
    greet(json, &plain, &https, admin_address, &path, token.as_deref());
    ready::watchdog(move || watches.iter_mut().all(Watch::alive))?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let drained = Notify::new();
        let stopping = async {
            tokio::select! {
                () = supervise(&shutdown, || admin.is_finished() || store.has_ended()) => {}
                never = front.fold_clicks() => match never {},
                never = front.give_back_grants() => match never {},
            }
            readiness.set_stopping();
            // The admin listener does not wait for writes whose clients have left, but their lines in the audit log
            // need its thread.
            let _ = tokio::time::timeout(LAST_WRITES, writes_ended).await;
            admin_shutdown.trigger();
            // The public listener ends once its connections have drained.
            while !public.is_finished() {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
            drained.notify_one();
        };
        tokio::join!(stopping, front.flush_until(drained.notified()));
    });
    let mut ended = None;
    if public.join().is_err() || shutdown.outcome().is_err() {
        ended = Some("a listener");
    }
    if store.has_ended() {
        ended = Some("the database's writer");
    }
    front.close();
    if admin.join().is_err() {
        ended = Some("the admin listener");
    }
    store.close();
    access_log.iter().for_each(AccessLog::finish);
    audit_log.iter().for_each(AuditLog::finish);
    ended.map_or(Ok(()), |thread| Err(Error::Ended(thread)))
}

/// Opens the database, and a cache that is coherent with it.
fn open(args: &Args, location: Location, workers: usize) -> Result<(Store, Arc<Cache>), store::Error> {
    let (codes, targets) = (args.policy.codes(), args.policy.targets());
    match location {
        Location::File(path) => {
            let cache = Arc::new(Cache::new(args.cache_bytes));
            let coherent = Arc::clone(&cache);
            let store = Store::open(Options {
                path: path.clone(),
                codes,
                targets,
                queue: args.write_queue,
                on_change: Box::new(move |change| coherent.changed(&change)),
            })?;
            permissions::restrict(&path);
            if !store.is_writable() {
                let path = path.display();
                tracing::error!(%path, "the database is read-only: writes are refused, and clicks are not stored");
            }
            Ok((store, cache))
        }
        Location::Postgres(url) => {
            let cache = Cache::following(args.cache_bytes);
            let staleness = Duration::from_millis(args.staleness);
            let store = Store::connect(PostgresOptions {
                url: *url,
                codes,
                targets,
                queue: args.write_queue,
                connections: args.connections,
                timeout: DATABASE_TIMEOUT,
                pipelines: NonZero::new(workers).unwrap_or(NonZero::<usize>::MIN),
                staleness,
                serves: true,
                traced: args.trace_database,
                watch: Arc::new(Coherent {
                    cache: Arc::clone(&cache),
                    staleness,
                    while_down: Duration::from_secs(args.cached_while_down),
                }),
            })?;
            Ok((store, cache))
        }
    }
}

/// Passes news of writes on to a cache.
struct Coherent {
    cache: Arc<Cache>,
    staleness: Duration,
    while_down: Duration,
}

impl store::Watch for Coherent {
    fn changed(&self, change: Change<'_>) {
        self.cache.changed(&change);
    }

    fn heard_all_before(&self, instant: Instant) {
        self.cache.heard_all_before(instant, self.staleness);
    }

    fn away(&self) {
        self.cache.away(self.while_down);
    }
}

/// Waits until the server is told to stop, or one of its threads has ended.
async fn supervise(shutdown: &Shutdown, has_ended: impl Fn() -> bool) {
    let ended = async {
        while !has_ended() {
            tokio::time::sleep(LOOK).await;
        }
        tracing::error!("a thread ended: so does the service");
        shutdown.fail();
    };
    tokio::select! {
        // A requested shutdown goes first: a thread that ends because of it is no failure.
        biased;
        () = shutdown.wait() => {}
        () = ended => {}
    }
}

/// The settings of visits.
fn settings(args: &Args) -> Result<Settings, Error> {
    let robots = match &args.robots {
        None => ROBOTS.to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).map_err(|source| Error::File { path: path.clone(), source })?
        }
    };
    Ok(Settings {
        root_target: args.root_target.as_ref().map(url::Url::to_string),
        unknown_host: unknown_host(args),
        favicon_target: args.favicon_target.as_ref().map(url::Url::to_string),
        robots,
        redirect_body: args.redirect_body,
        redirect_max_age: args.redirect_max_age,
        click_retention: Retention {
            days: NonZero::new(args.click_retention),
            hours: NonZero::new(args.click_hour_retention).unwrap_or(NonZero::<u32>::MIN),
        },
    })
}

/// What answers at hosts that belong to no domain.
fn unknown_host(args: &Args) -> UnknownHost {
    let own = args.policy.public.public_url.as_ref().and_then(url::Url::host_str);
    match own.filter(|_| args.unknown_host == "not-found") {
        Some(own) => UnknownHost::NotFound { own: own.to_owned() },
        None => UnknownHost::Default,
    }
}

/// The public listener: endpoints without TLS first, then those with TLS.
fn listening(args: &Args, metrics: &Arc<Metrics>, access_log: Option<AccessLog>) -> listener::Config {
    let plain = args.policy.public.listen.iter().cloned().map(if args.h2c.h2c {
        listener::Endpoint::h2c
    } else {
        listener::Endpoint::plain
    });
    let secure = args.tls.tls_listen.iter().cloned().map(listener::Endpoint::tls);
    let limits = Limits {
        connections: args.limits.max_connections,
        connections_per_address: args.limits.per_address(),
        head_timeout: args.timeouts.head(),
        idle_timeout: args.timeouts.idle(),
        drain_timeout: args.timeouts.drain(),
    };
    listener::Config {
        endpoints: plain.chain(secure).collect(),
        workers: args.workers.workers,
        tls: listener::Tls::of(args.tls.files()),
        proxies: (&args.proxies).into(),
        refusals: Some(Arc::clone(metrics) as Arc<dyn listener::Refusals>),
        access_log,
        tcp: listener::Tcp { backlog: args.backlog.backlog, ..listener::Tcp::default() },
        http3: args.tls.http3(),
        ..limits.config()
    }
}

/// The settings for TLS. `https` are the addresses at which visitors use it.
fn secured(args: &Args, https: &[Address]) -> TlsPolicy {
    let public = args.policy.public.public_url.as_ref();
    let announced = public.filter(|url| url.scheme() == "https").and_then(url::Url::port_or_known_default);
    let bound = || {
        https.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            _ => None,
        })
    };
    TlsPolicy {
        redirects: args.https_redirect,
        hsts: args.hsts,
        port: announced.or_else(bound).unwrap_or(443),
        host: public.and_then(|url| url.host_str().map(str::to_owned)),
    }
}

fn registry(front: &Arc<Front>, public: &listener::metrics::Metrics, build: &BuildArgs) -> Registry {
    let mut registry = Registry::default();
    service::metrics::register_process(&mut registry);
    service::metrics::register_build(&mut registry, "links", build);
    panics::register(&mut registry, "linerate_links_panics");
    front.metrics.register(public, &mut registry);
    public.register(&mut registry, "linerate_links");
    let mut gauge = |name, help, read: fn(&Front) -> u64| {
        let front = Arc::clone(front);
        Family::new(name, help).with(&[], move || read(&front) as f64).register(&mut registry);
    };
    gauge("linerate_links_cache_entries", "Codes in the cache", |front| front.cache.len());
    gauge("linerate_links_cache_bytes", "Memory the cache is reckoned at", |front| front.cache.bytes());
    gauge(
        "linerate_links_cache_fresh",
        "Whether the cache is known to be right within its staleness, and used",
        |front| u64::from(front.cache.is_fresh()),
    );
    gauge("linerate_links_clicks_pending", "Clicks counted and not yet in the store", |front| {
        front.click_buffer.pending()
    });
    gauge("linerate_links_write_queue_depth", "Writes that wait for the database", |front| {
        front.store.depth() as u64
    });
    let followed = Arc::clone(front);
    Family::new(
        "linerate_links_feed_age_seconds",
        "Time since all that other servers had written was known last; 0 on SQLite, infinite where it never was",
    )
    .with(&[], move || followed.cache.feed_age().map_or(f64::INFINITY, |age| age.as_secs_f64()))
    .register(&mut registry);
    registry
}

/// A token for the console: on request, or if the database has no token yet. `None` if the database is read-only.
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

/// Prints the addresses on stdout, as one line of JSON if requested. The server runs even if nobody reads them.
fn greet(
    json: bool,
    plain: &[Address],
    https: &[Address],
    admin: Option<(&Address, &str)>,
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
        let admin = admin.map(url);
        let greeting =
            serde_json::json!({ "links": links, "admin": admin, "database": database, "token": token });
        let _ = writeln!(std::io::stdout(), "{greeting}");
        return;
    }
    let mut lines: String = public().map(|(address, scheme)| address.line("links", scheme)).collect();
    lines.extend(admin.map(|(address, scheme)| address.line("admin", scheme)));
    lines.push_str(&format!("database  {}\n", database.display()));
    if let Some(token) = token {
        lines.push_str(&format!("token     {token}\n"));
    }
    let _ = std::io::stdout().write_all(lines.as_bytes());
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn what_no_clock_and_no_memory_holds_is_refused() {
        for (flag, most, too_much) in
            [("--write-queue", "1000000", "1000001"), ("--body-timeout", "31536000", "18446744073709551615")]
        {
            let is_taken = |value| Cli::try_parse_from(["linerate-links", "serve", flag, value]).is_ok();
            assert_eq!([is_taken(most), is_taken(too_much), is_taken("0")], [true, false, false], "{flag}");
        }
    }

    #[tokio::test]
    async fn threads_that_end_because_they_were_told_to_are_no_failure() {
        for _ in 0..20 {
            let shutdown = Shutdown::new();
            shutdown.trigger();
            supervise(&shutdown, || true).await;
            assert!(shutdown.outcome().is_ok());
        }
        let shutdown = Shutdown::new();
        supervise(&shutdown, || true).await;
        assert!(shutdown.outcome().is_err(), "one that ends by itself is");
    }
}
