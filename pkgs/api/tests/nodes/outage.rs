//! PostgreSQL stops, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use api::store::Error;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_reads_go_on_while_postgresql_is_down_and_all_else_after() {
    let mut server = server(Durability::None);
    let staleness = Duration::from_secs(2);
    let short = Options {
        staleness,
        timeout: Duration::from_secs(2),
        acquire_timeout: Duration::from_secs(1),
        cached_while_down: Duration::from_secs(3600),
        ..options(&server)
    };
    // These limits may be too short for a first answer.
    let patient = node(&server).await;
    let (cached, other) = (create(&patient, 1).await.id, create(&patient, 2).await.id);
    drop(patient);
    let users = open(&server, short).await;
    warm(&users, cached).await;
    server.stop();

    let begin = Instant::now();
    eventually("cached reads go on past the staleness", async || {
        begin.elapsed() > staleness && users.lingering(cached).is_some()
    })
    .await;
    let (_, age) = users.lingering(cached).expect("it goes on");
    assert!(age >= staleness && users.cached(cached).is_none(), "they are told apart");
    // No server answers, so a request that returns did not wait for one.
    let read = users.get(other).await;
    assert!(matches!(read, Err(Error::Unreachable(_))), "{read:?}");
    let written = users.create(vec![user(3)], None).await;
    assert!(matches!(written, Err(Error::Unreachable(_) | Error::Busy)), "{written:?}");
    assert!(users.ping().await.is_err());

    server.resume().expect("it starts");
    eventually("it is read again", async || users.get(other).await.is_ok()).await;
    eventually("it is written again", async || users.create(vec![user(3)], None).await.is_ok()).await;
    warm(&users, other).await;
    let elsewhere = node(&server).await;
    let written = rewrite(&elsewhere, other, 2).await;
    tokio::time::sleep(staleness).await;
    assert_eq!(version(&users, other).await, written, "it listens again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill_of_postgresql_under_load() {
    let mut server = server(Durability::Machine);
    let acquire_timeout = Duration::from_secs(1);
    let users = open(&server, Options { timeout: PATIENCE, acquire_timeout, ..options(&server) }).await;
    let over = Arc::new(AtomicBool::new(false));
    let (written, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (users, over) = (users.clone(), Arc::clone(&over));
            let (written, failed) = (Arc::clone(&written), Arc::clone(&failed));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    match users.create(vec![user(writer * 1_000_000 + number)], None).await {
                        Ok(Created::Done(records)) => {
                            acknowledged.extend(records);
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(other) => panic!("{other:?}"),
                        Err(_) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
                acknowledged
            })
        })
        .collect();
    let more = async |what, count: &AtomicUsize, by| {
        let least = count.load(Ordering::Relaxed) + by;
        eventually(what, async || count.load(Ordering::Relaxed) >= least).await;
    };
    for _ in 0..2 {
        more("users are written", &written, 100).await;
        server.kill();
        more("it is noticed", &failed, 1).await;
        server.resume().expect("it recovers");
    }
    more("it is written again", &written, 100).await;
    over.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for writer in writers {
        all.extend(writer.await.expect("it writes"));
    }
    let ids: Vec<UserId> = all.iter().map(|record| record.id).collect();
    let elsewhere = node(&server).await;
    let mut found = Vec::new();
    for ids in ids.chunks(500) {
        found.extend(elsewhere.get_many(ids).await.expect("the database answers"));
    }
    found.sort_by_key(|record| record.id);
    all.sort_by_key(|record| record.id);
    println!("{} acknowledged, {} not", all.len(), failed.load(Ordering::Relaxed));
    assert!(found == all, "{} of {} are as they were acknowledged", found.len(), all.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_another_that_migrates_longer_than_any_statement_may_take() {
    let server = server(Durability::None);
    let timeout = Duration::from_secs(1);
    drop(node(&server).await);
    std::thread::scope(|scope| {
        let migrating = scope.spawn(|| {
            let held = "BEGIN; LOCK TABLE linerate_schema; SELECT pg_sleep(4); COMMIT";
            server.execute("postgres", held).expect("it answers")
        });
        let waiting = "SELECT count(*) FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock'";
        while server.execute("postgres", waiting).expect("it answers").trim() == "0" {
            std::thread::sleep(Duration::from_millis(10));
        }
        let limited = Options { timeout, acquire_timeout: PATIENCE, ..options(&server) };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(open(&server, limited)));
        migrating.join().expect("no panic");
    });
}
