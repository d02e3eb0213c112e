//! `kill -9` for a server and for the database under load: every acknowledged write is there, on both servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bench::postgres::Durability;
use serde_json::json;
use testkit::until;

use crate::server::{Server, alone, random};
use crate::{ask, node, start};

/// The state that the writers share.
#[derive(Default)]
struct Writers {
    over: AtomicBool,
    /// How many links were created.
    made: AtomicUsize,
}

/// Ends the writers, even if the test fails first. Otherwise the test would wait for them.
struct End<'a>(&'a Writers);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Writes until told to stop, or until the server is gone. Records the writes that were acknowledged, and those that
/// may have been done.
fn write(name: &str, server: &Server, writers: &Writers, links: &mut HashMap<String, (u64, u64)>) {
    let over = &writers.over;
    let mut api = server.api();
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let code = format!("{name}-{}", number % 50);
        let value = random(u64::MAX);
        let target = format!("https://t.example/{value}");
        let is_new = !links.contains_key(&code);
        let (known, doubtful) = links.entry(code.clone()).or_insert((0, 0));
        *doubtful = value;
        let written = match is_new {
            true => api.create(&code, &target),
            false => api.edit(&code, &json!({ "target": target })),
        };
        match written {
            Ok(200 | 201) => {
                *known = value;
                writers.made.fetch_add(usize::from(is_new), Ordering::Relaxed);
            }
            // It is unknown whether this write was done, or whether an earlier one was done after all. An edit settles
            // it.
            Ok(409 | 503) => {
                let patch = json!({ "target": target });
                let settled = loop {
                    if over.load(Ordering::Relaxed) {
                        break false;
                    }
                    match api.edit(&code, &patch) {
                        Ok(200) => break true,
                        Ok(404) if *known == 0 => break false,
                        Ok(503) => std::thread::sleep(Duration::from_millis(5)),
                        Ok(status) => panic!("{code}: {status}"),
                        Err(_) => break false,
                    }
                };
                if settled {
                    *known = value;
                } else if *known == 0 {
                    links.remove(&code);
                }
            }
            Ok(status) => panic!("{code}: {status}"),
            Err(_) => return,
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9_of_the_database_and_of_a_server() {
    let _alone = alone();
    let (mut postgres, place) = start(Durability::Machine);
    let keeper = node(&place, &[]);
    assert_eq!(keeper.api().create("visited", "https://t.example/").expect("an answer"), 201);
    for round in 0..6 {
        let server = node(&place, &[]);
        let writers = Writers::default();
        let mut written: Vec<HashMap<String, (u64, u64)>> = vec![HashMap::new(); 4];
        std::thread::scope(|scope| {
            let _end = End(&writers);
            for (index, links) in written.iter_mut().enumerate() {
                let (writers, on) = (&writers, if index < 2 { &keeper } else { &server });
                scope.spawn(move || write(&format!("r{round}w{index}"), on, writers, links));
            }
            // The kill comes under load, at a random moment.
            until("links are made", || writers.made.load(Ordering::Relaxed) > 20);
            std::thread::sleep(Duration::from_millis(random(700)));
            if round % 2 == 0 {
                postgres.kill();
                postgres.resume().expect("it starts again");
            } else {
                server.signal(rustix::process::Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(500));
        });
        until("the database is back", || {
            keeper.api().ask("GET", "?limit=1", "").is_ok_and(|answer| answer.status == 200)
        });
        let mut client = keeper.connect();
        for (code, (known, doubtful)) in written.iter().flatten() {
            let expected = |value: u64| (307, Some(format!("https://t.example/{value}")));
            // Within the bound, the answer may be the earlier one, if the other server wrote the newer one.
            until(code, || {
                let found = ask(&mut client, code);
                found == expected(*known) || found == expected(*doubtful) || *known == 0 && found.0 == 404
            });
        }
        if round % 2 == 0 {
            server.stop();
        } else {
            server.wait(crate::PATIENCE);
        }
    }
    keeper.stop();
}

#[test]
fn clicks_are_counted_once_though_the_database_is_killed_again_and_again() {
    let _alone = alone();
    let (mut postgres, place) = start(Durability::Machine);
    let servers = [node(&place, &[]), node(&place, &[])];
    assert_eq!(servers[0].api().create("visited", "https://t.example/").expect("an answer"), 201);
    let mut clients = servers.each_ref().map(|server| server.connect());
    let mut followed = 0_u64;
    for round in 0..4 {
        for _ in 0..300 {
            for client in &mut clients {
                followed += u64::from(ask(client, "visited").0 == 307);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        postgres.kill();
        for client in &mut clients {
            for _ in 0..100 {
                let (status, _) = ask(client, "visited");
                followed += u64::from(status == 307);
            }
        }
        postgres.resume().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let mut api = servers[0].api();
    let mut counted = None;
    let begun = std::time::Instant::now();
    while counted != Some(followed) {
        assert!(begun.elapsed() < crate::PATIENCE, "{counted:?} of {followed} clicks are counted");
        std::thread::sleep(Duration::from_millis(50));
        let answer = api.ask("GET", "/visited", "").expect("an answer");
        let link: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
        counted = link.and_then(|link| link["clicks"].as_u64());
    }
    for server in servers {
        server.stop();
    }
    let counted =
        postgres.execute("postgres", "SELECT sum(count) FROM clicks WHERE link = 0").expect("it answers");
    assert_eq!(counted.trim(), followed.to_string(), "by day, referrer and agent too");
}
