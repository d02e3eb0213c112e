//! PostgreSQL stops, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::store::Error;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_reads_go_on_while_postgresql_is_down_and_all_else_after() {
    let mut server = server(Durability::None);
    let users = node(&server).await;
    let (cached, other) = (create(&users, 1).await.id, create(&users, 2).await.id);
    warm(&users, cached).await;
    server.stop();

    let begin = Instant::now();
    while begin.elapsed() < STALENESS * 3 {
        assert!(users.cached(cached).is_some(), "after {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Longer than the timeout of the node, by as much as a busy machine may need.
    let in_time = |begin: Instant| assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let begin = Instant::now();
    let read = users.get(other).await;
    assert!(matches!(read, Err(Error::Unreachable(_))), "{read:?}");
    in_time(begin);
    let begin = Instant::now();
    let written = users.create(vec![seed::document(3)], None).await;
    assert!(matches!(written, Err(Error::Unreachable(_) | Error::Busy)), "{written:?}");
    in_time(begin);
    let begin = Instant::now();
    assert!(users.ping().await.is_err());
    in_time(begin);

    server.resume().expect("it starts");
    eventually("it is read again", async || users.get(other).await.is_ok()).await;
    eventually("it is written again", async || users.create(vec![seed::document(3)], None).await.is_ok())
        .await;
    warm(&users, other).await;
    let elsewhere = node(&server).await;
    let written = rewrite(&elsewhere, other, 2).await;
    tokio::time::sleep(STALENESS).await;
    assert_eq!(version(&users, other).await, written, "it listens again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill_of_postgresql_under_load() {
    let mut server = server(Durability::Full);
    let users = node(&server).await;
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (users, over) = (users.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                let mut failures = 0;
                for number in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let document = seed::document(writer * 1_000_000 + number);
                    match users.create(vec![document], None).await {
                        Ok(Created::Done(records)) => acknowledged.extend(records),
                        Ok(other) => panic!("{other:?}"),
                        Err(_) => failures += 1,
                    }
                }
                (acknowledged, failures)
            })
        })
        .collect();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.kill();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.resume().expect("it recovers");
    }
    eventually("it is written again", async || users.ping().await.is_ok()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    over.store(true, Ordering::Relaxed);
    let (mut all, mut failures) = (Vec::new(), 0);
    for writer in writers {
        let (acknowledged, failed) = writer.await.expect("it writes");
        all.extend(acknowledged);
        failures += failed;
    }
    assert!(failures > 0, "nobody noticed");
    let ids: Vec<UserId> = all.iter().map(|record| record.id).collect();
    let elsewhere = node(&server).await;
    let mut found = Vec::new();
    for ids in ids.chunks(500) {
        found.extend(elsewhere.get_many(ids).await.expect("the database answers"));
    }
    found.sort_by_key(|record| record.id);
    all.sort_by_key(|record| record.id);
    println!("{} acknowledged, {failures} not", all.len());
    assert!(found == all, "{} of {} are as they were acknowledged", found.len(), all.len());
}
