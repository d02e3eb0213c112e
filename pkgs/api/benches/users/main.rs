//! What it costs to read a user by id and to echo a document, compared with pgbench, axum::serve with an sqlx pool, and
//! actix-web with the same store.
//!
//! `cargo bench -p linerate-api --bench users [-- [--quick] [--strict]]`. Needs wrk and PostgreSQL, and installs them
//! from Debian packages when root runs it. Prints one table and the targets, and writes both to
//! `target/bench/api.json`, and the bars to `target/bench/api.svg`. An unexpected answer is a failure, and with
//! `--strict` so is a missed target. `LINERATE_BENCH_OTHER` names a directory with another build of linerate-api, which
//! is then measured too.
#![forbid(unsafe_code)]

mod peers;

use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use api::seed;
use api::users::{Options, Users};
use bench::postgres::{Durability, Postgres};
use bench::report::{Report, find};
use bench::rounds::{Case, Series, alternate, median, merge};
use bench::server::{Placement, Server};
use bench::wrk::{Content, Load, Requests};
use bench::{Error, chart, entry, setup};
use http::Method;

use peers::{ACTIX, AXUM, OTHER, OURS, PGBENCH, POOLS};

// The peers use the same allocator as the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Two workers, which share all CPUs with PostgreSQL and the load.
const SPREAD: Placement = Placement { workers: 2, cpu: None };

/// One worker, which takes turns with the load on one CPU. Nothing else disturbs it there, so rounds differ least. This
/// does not suit PostgreSQL, which would be a third process.
const ONE_CORE: Placement = Placement { workers: 1, cpu: Some(0) };

const UNCACHED: &str = "PostgreSQL";
const CACHED: &str = "cached";
const SQLITE: &str = "SQLite";
const ECHO: &str = "echo";
const CACHED_ALONE: &str = "cached, one core";
const SQLITE_ALONE: &str = "SQLite, one core";
const ECHO_ALONE: &str = "echo, one core";
const HALF: &str = "half load";

/// Users in each database: about 110 MB.
const USERS: u64 = 50_000;

/// Users that are requested if they should be cached.
const FEW: u64 = 5_000;

/// Waits until pgbench's PostgreSQL processes are gone: the time of an ended process is missing from the sum.
const SETTLE: &str = "DO $$ BEGIN WHILE EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'pgbench') LOOP \
                      PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01); END LOOP; PERFORM pg_sleep(0.2); END $$";

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    entry::run(run)
}

fn run(quick: bool) -> Result<Report, Error> {
    // Packages are downloaded, so they are installed before the bench isolates its network.
    setup::require("wrk", "wrk")?;
    drop(Postgres::start(Durability::None, &[])?);
    let network = setup::isolate();
    eprintln!("{network}");
    let (rounds, seconds) = if quick { (1, 1) } else { (3, 3) };
    let load = Load { threads: 2, connections: 64, seconds };

    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = scratch.with_file_name("bench");
    let scratch = tempfile::tempdir_in(scratch)?;
    let mut report = Report::new(&network);
    report.condition(format!("{rounds} rounds of all cases in turn; medians"));
    report
        .condition(format!("2 workers and {load} on all CPUs; {USERS} users of about 2 KB, each as likely"));
    report.condition(format!("one core: 1 worker and {} on CPU 0", alone(load)));
    report.condition("PostgreSQL on a Unix socket, nothing synced, 512 MB of buffers".to_owned());
    report.condition(format!("pgbench -S -M prepared: -c{PGBENCH} -j2, its own rows of about 100 bytes"));

    let server = Postgres::start(Durability::None, &["shared_buffers=512MB", "max_connections=400"])?;
    let sqlite = format!("sqlite:{}", scratch.path().join("users.db").display());
    for database in [server.url("postgres"), sqlite.clone()] {
        fill(&database, &mut report)?;
    }
    server.execute("postgres", "VACUUM ANALYZE")?;
    server.create_database("pgbench")?;
    server.fill_pgbench("pgbench")?;

    let all = paths(scratch.path(), "all.txt", USERS)?;
    let few = paths(scratch.path(), "few.txt", FEW)?;
    let pool = best_pool(&server.url("postgres"), load, &all)?;
    report.condition(format!(
        "pool of sqlx: {pool} connections, the best of {POOLS:?}; no ping before a query"
    ));
    let servers = Servers::start(&server, &sqlite, &few, pool)?;
    let cases = servers.cases(load, &all, &few);
    let seconds_text = seconds.to_string();
    let pgbench = |connections: &str| {
        let arguments = ["-n", "-S", "-M", "prepared", "-j", "2", "-T", &seconds_text, "-c", connections];
        server.pgbench("pgbench", &arguments)
    };
    let mut series: Vec<Series> = Vec::new();
    let (mut tps, mut postgres_us) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tps.push(pgbench(&PGBENCH.to_string())?);
        server.execute("postgres", SETTLE)?;
        let before = server.usage()?;
        let round = alternate(1, &cases[..1])?;
        let after = server.usage()?;
        let seconds = load.seconds as f64 + 1.0;
        let used = after.cpu().saturating_sub(before.cpu());
        postgres_us.push(used.as_secs_f64() * 1e6 / (round[0].samples[0].qps * seconds));
        merge(&mut series, round);
        merge(&mut series, alternate(1, &cases[1..])?);
    }
    let most = find(&series, OURS, UNCACHED).expect("it was measured").median(|sample| sample.qps);
    let half = half_load(load, most, |load| Case {
        server: &servers.uncached,
        name: HALF,
        requests: all.clone(),
        load,
        placement: SPREAD,
    })?;
    report.condition(format!("half load: {}, each connection asking when it was answered", half.load));
    series.extend(alternate(rounds, &[half])?);

    report.add(&series, &[AXUM, OTHER]);
    let most = pgbench("64")?;
    judge(&mut report, &series, median(tps.into_iter()));
    report.no_worse(&series, (OURS, OTHER), |_| true);
    routes(&mut report, &series);
    report.figure("pgbench with 64 connections", most, "TPS");
    report.figure("PostgreSQL's own CPU per read", median(postgres_us.into_iter()), "µs");
    report.print();
    let (json, svg) = (results.join("api.json"), results.join("api.svg"));
    report.write(&json)?;
    chart::write(&svg, "CPU time per read by id from PostgreSQL", UNCACHED, &report.rows)?;
    println!("written: {} {}", json.display(), svg.display());
    Ok(report)
}

/// The case with the number of connections for which the service's rate is closest to half of `most` requests per
/// second.
///
/// wrk pauses in whole milliseconds: connections that pause would send bursts, and the bursts would be measured.
fn half_load<'a>(load: Load, most: f64, case: impl Fn(Load) -> Case<'a>) -> Result<Case<'a>, Error> {
    let mut best = (f64::INFINITY, load);
    for connections in [2, 3, 4, 6, 8, 12, 16] {
        let load = Load { connections, ..load };
        let series = alternate(1, &[case(Load { seconds: 1, ..load })])?;
        let distance = (series[0].samples[0].qps - most / 2.0).abs();
        if distance < best.0 {
            best = (distance, load);
        }
    }
    Ok(case(best.1))
}

/// The pool size with which sqlx answers most reads.
fn best_pool(database: &str, load: Load, all: &Requests) -> Result<u64, Error> {
    let mut best = (0.0, POOLS[0]);
    for pool in POOLS {
        let server = peers::start(AXUM, SPREAD, database, pool)?;
        let case = Case {
            server: &server,
            name: UNCACHED,
            requests: all.clone(),
            load: Load { seconds: 1, ..load },
            placement: SPREAD,
        };
        // The first round fills the caches.
        let series = alternate(3, &[case])?;
        let qps = series[0].median(|sample| sample.qps);
        eprintln!("axum with a pool of {pool}: {qps:.0} requests/s");
        if qps > best.0 {
            best = (qps, pool);
        }
    }
    Ok(best.1)
}

/// The same load from one thread.
fn alone(load: Load) -> Load {
    Load { threads: 1, ..load }
}

fn judge(report: &mut Report, series: &[Series], tps: f64) {
    let get = |server, case| find(series, server, case).expect("all cases were measured");
    let ours = |case| get(OURS, case);
    let qps = ours(UNCACHED).median(|sample| sample.qps);
    report.figure(format!("pgbench with {PGBENCH} connections"), tps, "TPS");
    report.figure("reads / pgbench's TPS", qps / tps, "x");
    report.target("pgbench's TPS / reads", tps / qps, "x", 1.0 / 0.6);
    report.target("read by id, PostgreSQL", ours(UNCACHED).cpu_us(), "µs", 15.0);
    for (cases, most) in
        [([CACHED, CACHED_ALONE], 6.0), ([ECHO, ECHO_ALONE], 8.0), ([SQLITE, SQLITE_ALONE], 12.0)]
    {
        for case in cases {
            report.target(case, ours(case).cpu_us(), "µs", most);
        }
    }
    let tail = ours(HALF).median(|sample| sample.p99_us / sample.p50_us);
    report.target("p99 / median at half load", tail, "x", 3.0);
    report.figure("requests/s at half load", ours(HALF).median(|sample| sample.qps), "1/s");
}

/// The router's share: the time of a match in the served table, which decides everything about a request.
fn routes(report: &mut Report, series: &[Series]) {
    const MATCHES: u32 = 1_000_000;
    let router = api::http::routes::router();
    let ids: Vec<String> = (0..1_024).map(|number| format!("/v1/users/{}", seed::id(number))).collect();
    let validated = vec!["/v1/users:validate".to_owned()];
    for (case, method, paths) in [(CACHED_ALONE, Method::GET, ids), (ECHO_ALONE, Method::POST, validated)] {
        let begin = Instant::now();
        for path in paths.iter().cycle().take(MATCHES as usize) {
            black_box(router.find(black_box(&method), black_box(path)));
        }
        let took = begin.elapsed().as_secs_f64() * 1e6 / f64::from(MATCHES);
        let whole = find(series, OURS, case).expect("it was measured").cpu_us();
        report.figure(format!("the router's match, {case}"), took * 1e3, "ns");
        report.figure(format!("the router's share, {case}"), took / whole * 100.0, "%");
    }
}

/// Writes the users into a database.
fn fill(database: &str, report: &mut Report) -> Result<(), Error> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| Error::Load {
        server: database.into(),
        case: "seed".into(),
        what: format!("{error}: {:?}", error.source()),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let begin = Instant::now();
    runtime.block_on(async {
        let options = Options::new(
            database.parse().map_err(|error: api::users::InvalidDatabaseUrl| failed(error.into()))?,
        );
        let users = Users::open(&options).await.map_err(|error| failed(error.into()))?;
        seed::seed(&users, USERS, |_| {}).await.map_err(|error| failed(error.into()))
    })?;
    let kind = database.split(':').next().unwrap_or_default();
    report.figure(format!("users seeded, {kind}"), USERS as f64 / begin.elapsed().as_secs_f64(), "1/s");
    Ok(())
}

/// Requests for the first `count` users, one after another in an order that no cache predicts.
fn paths(scratch: &Path, name: &str, count: u64) -> Result<Requests, Error> {
    let mut lines = String::new();
    for number in 0..count {
        let _ = writeln!(lines, "/v1/users/{}", seed::id(number));
    }
    let file = scratch.join(name);
    fs::write(&file, lines).map_err(Error::file(&file))?;
    // The stride has no common divisor with the counts, so each user is requested once before any is requested twice.
    // Each thread starts elsewhere.
    let script = format!(
        "local ready, at, threads = {{}}, 0, 0\n\
         function setup(thread) thread:set('start', threads * 24989); threads = threads + 1 end\n\
         function init()\n\
           for line in io.lines('{}') do ready[#ready + 1] = wrk.format('GET', line) end\n\
           at = start\n\
         end\n\
         function request() at = (at + 7919) % #ready; return ready[at + 1] end\n",
        file.display()
    );
    Ok(Requests::scripted(format!("/v1/users/{}", seed::id(0)), script, 200))
}

/// Everything that is measured, running.
struct Servers {
    uncached: Server,
    cached: Server,
    sqlite: Server,
    axum: Server,
    actix: Server,
    actix_cached: Server,
    alone: Server,
    cached_alone: Server,
    axum_alone: Server,
    actix_alone: Server,
    /// Another build of ours, as `cached_alone` and as `alone`.
    others: Option<[Server; 2]>,
}

impl Servers {
    fn start(server: &Postgres, sqlite: &str, few: &Requests, pool: u64) -> Result<Self, Error> {
        let url = server.url("postgres");
        let start = |name, database: &str, cache| peers::start(name, SPREAD, database, cache);
        let alone = |name, database: &str, cache| peers::start(name, ONE_CORE, database, cache);
        let servers = Self {
            uncached: start(OURS, &url, 0)?,
            cached: start(OURS, &url, 64 << 20)?,
            sqlite: start(OURS, sqlite, 0)?,
            axum: start(AXUM, &url, pool)?,
            actix: start(ACTIX, &url, 0)?,
            actix_cached: start(ACTIX, &url, 64 << 20)?,
            alone: alone(OURS, sqlite, 0)?,
            cached_alone: alone(OURS, &url, 64 << 20)?,
            axum_alone: alone(AXUM, &url, pool)?,
            actix_alone: alone(ACTIX, &url, 64 << 20)?,
            others: match setup::other_build(OURS)? {
                Some(_) => Some([alone(OTHER, &url, 64 << 20)?, alone(OTHER, sqlite, 0)?]),
                None => None,
            },
        };
        let read =
            format!("GET /v1/users/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", seed::id(3));
        let document = serde_json::to_string(&seed::document(7)).expect("it serialises");
        let echo = format!(
            "POST /v1/users:validate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{document}",
            document.len()
        );
        for request in [&read, &echo] {
            peers::require_the_same(
                &[&servers.uncached, &servers.sqlite, &servers.axum, &servers.actix],
                request,
            )?;
        }
        let visited: Vec<String> = (0..FEW).map(|number| format!("/v1/users/{}", seed::id(number))).collect();
        for server in [&servers.cached, &servers.actix_cached, &servers.cached_alone, &servers.actix_alone] {
            server.visit(&visited, few.status)?;
        }
        if let Some([cached, _]) = &servers.others {
            cached.visit(&visited, few.status)?;
        }
        Ok(servers)
    }

    fn cases(&self, load: Load, all: &Requests, few: &Requests) -> Vec<Case<'_>> {
        let document = serde_json::to_string(&seed::document(7)).expect("it serialises");
        let content = Content { media_type: "application/json", text: document };
        let echo = Requests::posting("/v1/users:validate", content, 200);
        let spread = [
            (&self.uncached, UNCACHED, all),
            (&self.axum, UNCACHED, all),
            (&self.actix, UNCACHED, all),
            (&self.cached, CACHED, few),
            (&self.actix_cached, CACHED, few),
            (&self.sqlite, SQLITE, all),
            (&self.uncached, ECHO, &echo),
            (&self.axum, ECHO, &echo),
            (&self.actix, ECHO, &echo),
        ];
        let mut one_core = vec![
            (&self.cached_alone, CACHED_ALONE, few),
            (&self.actix_alone, CACHED_ALONE, few),
            (&self.alone, SQLITE_ALONE, all),
            (&self.alone, ECHO_ALONE, &echo),
            (&self.axum_alone, ECHO_ALONE, &echo),
            (&self.actix_alone, ECHO_ALONE, &echo),
        ];
        if let Some([cached, other]) = &self.others {
            one_core.extend([
                (cached, CACHED_ALONE, few),
                (other, SQLITE_ALONE, all),
                (other, ECHO_ALONE, &echo),
            ]);
        }
        let case = |load, placement| {
            move |(server, name, requests): (_, _, &Requests)| Case {
                server,
                name,
                requests: requests.clone(),
                load,
                placement,
            }
        };
        let spread = spread.into_iter().map(case(load, SPREAD));
        spread.chain(one_core.into_iter().map(case(alone(load), ONE_CORE))).collect()
    }
}
