//! Two nodes: no node's cache hides a write of the other node for too long.

use std::process::Command;

use super::*;

/// The process that serves the connection on which each node listens.
fn listeners(server: &Postgres) -> Vec<String> {
    let pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'linerate-api listen'";
    server.execute("postgres", pids).expect("it answers").lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_on_one_node_is_soon_read_on_the_other() {
    let server = server(Durability::None);
    let (one, other) = (node(&server).await, node(&server).await);
    let id = create(&one, 1).await.id;
    warm(&other, id).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        let written = rewrite(&one, id, 1).await;
        assert_eq!(version(&one, id).await, written, "a node reads its own writes");
        let begin = Instant::now();
        loop {
            // How long the answer takes does not matter, only when the read began.
            let asked = begin.elapsed();
            if version(&other, id).await == written {
                slowest = slowest.max(asked);
                break;
            }
            assert!(asked < STALENESS, "stale");
            tokio::task::yield_now().await;
        }
    }
    println!("slowest: {slowest:?}");
    warm(&other, id).await;
    one.delete(&[id], None).await.expect("the database answers");
    eventually("gone", async || other.get(id).await.expect("the database answers").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_revoked_on_one_node_soon_opens_nothing_on_the_other() {
    let server = server(Durability::None);
    let (one, other) = (node(&server).await, node(&server).await);
    let key = api::store::NewKey {
        name: "k".into(),
        digest: [7; 32],
        scope: api::store::Scope::Read,
        rate: None,
        burst: None,
        expires_at: None,
    };
    let find = async || other.key_by_digest(&[7; 32]).await.expect("the database answers");
    assert_eq!(find().await, None);
    let key = one.add_key(key).await.expect("the database answers");
    eventually("known", async || find().await.is_some()).await;
    one.revoke_key(key.id).await.expect("the database answers");
    tokio::time::sleep(STALENESS).await;
    assert_eq!(find().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_no_longer_hears_does_not_answer_from_its_cache() {
    let server = server(Durability::None);
    let (one, other) = (node(&server).await, node(&server).await);
    let id = create(&one, 1).await.id;
    warm(&other, id).await;

    // Both listening connections hang: their processes are stopped, so that neither changes nor the ends of the
    // connections arrive.
    let signal = |signal: &str, processes: &[String]| {
        Command::new("kill").arg(signal).args(processes).status().expect("kill runs").success()
    };
    // Stop them only while they are idle. During a NOTIFY a process holds the lock that every NOTIFY takes, including
    // the writer's.
    let at_rest = "SELECT count(*) FROM pg_stat_activity \
                   WHERE application_name = 'linerate-api listen' AND wait_event = 'ClientRead'";
    let mut stopped = Vec::new();
    eventually("both listen, and are at nothing else", async || {
        stopped = listeners(&server);
        if stopped.len() != 2 {
            return false;
        }
        let are_stopped = signal("-STOP", &stopped);
        let well = are_stopped && server.execute("postgres", at_rest).is_ok_and(|count| count.trim() == "2");
        if !well {
            signal("-CONT", &stopped);
        }
        well
    })
    .await;
    let written = rewrite(&one, id, 1).await;
    tokio::time::sleep(STALENESS).await;
    assert_eq!(version(&other, id).await, written);
    assert!(signal("-CONT", &stopped));
    warm(&other, id).await;

    // Both listening connections are cut again and again, while writes continue.
    for _ in 0..5 {
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'linerate-api listen'";
        server.execute("postgres", cut).expect("it answers");
        let written = rewrite(&one, id, 1).await;
        tokio::time::sleep(STALENESS).await;
        assert_eq!(version(&other, id).await, written);
        warm(&other, id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_begins_after_a_write_sees_it() {
    let server = server(Durability::None);
    let users = node(&server).await;
    let id = create(&users, 1).await.id;
    // Readers keep the batches and the cache busy with the same user.
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let users = users.clone();
            tokio::spawn(async move {
                for _ in 0..2_000 {
                    version(&users, id).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for _ in 0..100 {
        let written = rewrite(&users, id, 1).await;
        assert_eq!(version(&users, id).await, written);
    }
    for reader in readers {
        reader.await.expect("it reads");
    }
}
