//! Two nodes each of api and links under load on a PostgreSQL that fails over: one with the URL of all three hosts, one
//! through pgbouncer and HAProxy.
//!
//! It checks that what was acknowledged is stored; that no read is older than the bound, unless it says that the
//! database is away; that a constantly followed link never fails; that each click counts once, and that no click limit
//! is exceeded. It prints for how long nothing could be written. It needs root, for namespaces, and Debian's etcd,
//! HAProxy, pgbouncer and PostgreSQL; Patroni comes from PyPI.
#![forbid(unsafe_code)]

mod cluster;
mod links;
mod load;
// Shared with the tests of one node, which need more of it.
#[allow(dead_code, unused_macros)]
#[path = "../serve/place.rs"]
mod place;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/tools.rs"]
mod tools;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{client, wait_for};

use cluster::Cluster;
use load::{Seen, Writes};
use place::{Place, Server, value};

/// Says that this runs in its own namespaces, and where Patroni is.
const WITHIN: &str = "LINERATE_FLEET_PATRONI";

/// How many writes each node has to acknowledge before the next event.
const WRITES: usize = 20;

fn main() {
    // The arguments of the test harness, which this program is not.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if arguments.iter().any(|argument| argument == "--list")
        || !(filters.is_empty() || filters.iter().any(|filter| "fleet".contains(filter.as_str())))
    {
        return;
    }
    if let Some(programs) = std::env::var_os(WITHIN) {
        return fail_over(programs.as_ref());
    }
    if !rustix::process::geteuid().is_root() {
        return bench::skip::skipped("fleet", "namespaces and PostgreSQL's user need root");
    }
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/install.sh");
    tools::run(Command::new(install).arg("fleet"));
    let programs = tools::python("patroni", include_str!("patroni.txt"));
    let mut again = Command::new("unshare");
    again.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c"]);
    // The shell is process 1 of the namespace, so it adopts processes that outlive their parent.
    again.arg("ip link set lo up && \"$0\"; exit $?").arg(std::env::current_exe().expect("a path"));
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    panic!("{}", again.env(WITHIN, programs).env("PATH", path).exec());
}

/// The whole test.
fn fail_over(programs: &std::path::Path) {
    let begin = Instant::now();
    // Cargo puts programs two directories above a test's own.
    let test = std::env::current_exe().expect("a path");
    let program = test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("linerate-links");
    assert!(program.is_file(), "{} is not built: 'make test-fleet' builds it", program.display());
    let mut cluster = Cluster::start(programs);
    println!(
        "fleet: three servers, etcd, HAProxy and pgbouncer after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    let flags = [
        "--staleness",
        "1000",
        "--cached-while-down",
        "60",
        "--database-timeout",
        "2000",
        "--acquire-timeout",
        "1000",
    ];
    let places = [cluster.hosts("app"), cluster.pooler("app")].map(Place::on);
    let nodes: Vec<Server> = places.iter().map(|place| place.serve(&flags)).collect();
    let first = links::Node::start(&program, &cluster.hosts("links"), None);
    let token = Some(first.token());
    let other = links::Node::start(&program, &cluster.pooler("links"), token);
    let shorteners = [first, other];
    links::Seen::prepare(&shorteners[0]);
    cluster.sql("links", &links::Seen::cold_links());
    let path = nodes[0].create_eventually("all", "", |_| ());
    let (seen, followed) = (Seen::default(), links::Seen::default());
    std::thread::scope(|scope| {
        let (seen, followed, path) = (&seen, &followed, path.as_str());
        for (number, node) in nodes.iter().enumerate() {
            let address = node.public;
            (0..2).for_each(|writer| drop(scope.spawn(move || seen.create(number, address, writer))));
            scope.spawn(move || seen.read(address, path));
        }
        let address = nodes[0].public;
        scope.spawn(move || seen.change(address, path));
        for (number, node) in shorteners.iter().enumerate() {
            scope.spawn(move || followed.create(number, node));
            scope.spawn(move || followed.follow(node));
            scope.spawn(move || followed.use_up(node, Duration::from_millis(40)));
        }
        let first = &shorteners[0];
        scope.spawn(move || followed.change(first));
        scope.spawn(move || followed.look_up(first));
        let writes = [&seen.created, &followed.created];
        let phases = || phases(&mut cluster, writes);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(phases));
        seen.over.store(true, Relaxed);
        followed.over.store(true, Relaxed);
        if let Err(panic) = result {
            println!("{}", cluster.said());
            let logs = nodes.iter().map(|node| node.log()).chain(shorteners.iter().map(links::Node::log));
            logs.for_each(|log| println!("== node\n{log}"));
            std::panic::resume_unwind(panic);
        }
    });
    followed.settle(&shorteners);
    let created = seen.created.all();
    let mut missing = 0;
    for ids in created.chunks(500) {
        let found = wait_for("users are read", || {
            let answer = nodes[0].send("POST", "/v1/users:batchGet", "", &json!({ "ids": ids }));
            (answer.status == 200).then(|| value(&answer))
        });
        missing += found["missing"].as_array().expect("a list").len();
    }
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Relaxed);
    println!(
        "fleet: api: {} writes acknowledged, {missing} of them not stored, {} refused; {} reads, {} older than the bound, {} while the \
         database was away, {} refused, the slowest {} ms; {:.0} s",
        created.len(),
        count(&seen.refused),
        count(&seen.reads),
        count(&seen.stale),
        count(&seen.lingering),
        count(&seen.failed),
        count(&seen.slowest),
        begin.elapsed().as_secs_f64()
    );
    assert_eq!(
        (missing, count(&seen.stale)),
        (0, 0),
        "acknowledged is stored, and nothing is older than the bound"
    );
}

/// What happens to the servers, one after the other; after each event the nodes write again.
fn phases(cluster: &mut Cluster, writes: [&Writes; 2]) {
    let after = |what: &str, begin: Instant| {
        let before = writes.map(|writes| [writes.count(0), writes.count(1)]);
        wait_for(what, || {
            let more = |(writes, before): (&Writes, [usize; 2])| {
                (0..2).all(|node| writes.count(node) >= before[node] + WRITES)
            };
            writes.into_iter().zip(before).all(more).then_some(())
        });
        let [api, links] = writes.map(|writes| [0, 1].map(|node| writes.gap(node, begin).as_secs_f64()));
        println!(
            "fleet: {what}: api {:.1} s and, through pgbouncer, {:.1} s without writes; links {:.1} s and {:.1} s",
            api[0], api[1], links[0], links[1]
        );
    };
    let stay = |duration| std::thread::sleep(duration);
    after("at rest", Instant::now());

    let begin = Instant::now();
    cluster.switch_over();
    after("switchover", begin);
    cluster.in_step();

    let begin = Instant::now();
    cluster.kill_postmaster();
    // Both the end and the repair come some time after the signal.
    stay(Duration::from_secs(2));
    after("postmaster killed", begin);
    cluster.in_step();

    let begin = Instant::now();
    cluster.hold_etcd(true);
    // This is longer than the leader's key lives. The members agree among themselves that it stays the leader.
    stay(Duration::from_secs(8));
    cluster.hold_etcd(false);
    after("etcd gone for 8 s", begin);
    cluster.in_step();

    let begin = Instant::now();
    cluster.lag(true);
    stay(Duration::from_secs(3));
    cluster.lag(false);
    after("standbys that lag by 3 s", begin);

    let begin = Instant::now();
    let cut = cluster.leader();
    cluster.cut(cut, true);
    wait_for("another leads", || (cluster.leader() != cut).then_some(()));
    after("the leader's network cut", begin);
    cluster.cut(cut, false);
    cluster.in_step();

    let begin = Instant::now();
    let killed = cluster.kill_leader();
    wait_for("another leads", || (cluster.leader() != killed).then_some(()));
    after("leader killed with its Patroni", begin);
    cluster.revive(killed);
    cluster.in_step();
    after("all three again", Instant::now());
}
