//! Click limits and counts hold for both servers together.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use bench::postgres::Durability;
use serde_json::json;
use testkit::until;

use crate::http::Client;
use crate::migrate::Held;
use crate::server::alone;
use crate::{ask, metric, misses, node, start};

#[test]
fn who_does_not_follow_a_link_takes_no_click_from_the_other_server() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let servers = [node(&place, &[]), node(&place, &[])];
    let mut api = servers[0].api();
    let [mut here, mut there] = servers.each_ref().map(|server| server.connect());
    for link in [
        json!({ "code": "once", "target": "https://t.example/", "max_clicks": 1 }),
        json!({ "code": "lock", "target": "https://t.example/", "max_clicks": 1, "password": "p" }),
    ] {
        assert_eq!(api.add(&link).expect("an answer"), 201);
    }
    here.send("HEAD /once HTTP/1.1\r\nHost: s.example\r\n\r\n").expect("it reads");
    assert_eq!(here.receive_head().expect("an answer").status, 200);
    let preview = "User-Agent: Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)\r\n";
    assert_eq!(here.request("GET", "/once", preview, "").expect("an answer").status, 200);
    assert_eq!(ask(&mut there, "once").0, 307);

    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(ask(&mut here, "lock").0, 200);
    assert_eq!(here.request("POST", "/lock", form, "password=wrong").expect("an answer").status, 403);
    assert_eq!(there.request("POST", "/lock", form, "password=p").expect("an answer").status, 303);
    assert_eq!(here.request("POST", "/lock", form, "password=p").expect("an answer").status, 410);
    for server in servers {
        server.stop();
    }
}

#[test]
fn visits_of_a_used_up_link_leave_the_database_alone_until_its_limit_changes() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let server = node(&place, &[]);
    let (mut api, mut client) = (server.api(), server.connect());
    let link = json!({ "code": "once", "target": "https://t.example/", "max_clicks": 1 });
    assert_eq!(api.add(&link).expect("an answer"), 201);
    assert_eq!(ask(&mut client, "once").0, 307);
    // While nobody knows whether the cache is outdated, each visit reads the link.
    until("its visits are answered without the database", || {
        let before = misses(&server);
        for _ in 0..200 {
            assert_eq!(ask(&mut client, "once").0, 410);
        }
        misses(&server) - before < 20
    });
    assert_eq!(api.edit("once", &json!({ "max_clicks": 2 })).expect("an answer"), 200);
    assert_eq!((ask(&mut client, "once").0, ask(&mut client, "once").0), (307, 410));
    server.stop();
}

#[test]
fn clicks_that_were_asked_for_by_a_visitor_who_left_are_there_for_the_next() {
    let _alone = alone();
    let (postgres, place) = start(Durability::None);
    let server = node(&place, &[]);
    let once = json!({ "code": "once", "target": "https://t.example/", "max_clicks": 1 });
    assert_eq!(server.api().add(&once).expect("an answer"), 201);
    let held = Held::new(&postgres, "BEGIN; LOCK TABLE limits IN EXCLUSIVE MODE");
    let open = || metric(&server, "linerate_links_listener_open{protocol=\"http1\"}");
    let before = open();
    let mut leaving = server.connect();
    leaving.send("GET /once HTTP/1.1\r\nHost: s.example\r\n\r\n").expect("it reads");
    held.waited_for();
    drop(leaving);
    until("it has left", || open() <= before);
    drop(held);
    // Whoever comes before the database has answered the first one may find nothing, for a second.
    until("the click", || ask(&mut server.connect(), "once").0 == 307);
    assert_eq!(ask(&mut server.connect(), "once").0, 410);
    server.stop();
}

#[test]
fn a_burst_on_one_server_is_answered_as_often_as_the_limit_says() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let server = node(&place, &[]);
    let link = json!({ "code": "burst", "target": "https://t.example/", "max_clicks": 160 });
    assert_eq!(server.api().add(&link).expect("an answer"), 201);
    let public = server.public;
    let (together, followed, gone) = (Barrier::new(200), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let mut client = Client::connect(public).expect("it listens");
                together.wait();
                match ask(&mut client, "burst").0 {
                    307 => followed.fetch_add(1, Ordering::Relaxed),
                    410 => gone.fetch_add(1, Ordering::Relaxed),
                    status => panic!("{status}"),
                };
            });
        }
    });
    assert_eq!((followed.into_inner(), gone.into_inner()), (160, 40));
    server.stop();
}

#[test]
fn no_link_answers_more_often_than_its_limit_over_both_servers_and_each_click_counts_once() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let servers = [node(&place, &[]), node(&place, &[])];
    let mut api = servers[0].api();
    for limit in [1_u64, 7, 100, 1_000] {
        let code = format!("limit-{limit}");
        let link = json!({ "code": code, "target": "https://t.example/", "max_clicks": limit });
        assert_eq!(api.add(&link).expect("an answer"), 201);
        let followed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for server in servers.iter().chain(&servers) {
                let (code, followed) = (&code, &followed);
                scope.spawn(move || {
                    let mut client = Client::connect(server.public).expect("it listens");
                    let mut gone = 0;
                    // The other server may still return clicks that it was granted and didn't need.
                    while gone < 50 {
                        match ask(&mut client, code).0 {
                            307 => {
                                followed.fetch_add(1, Ordering::Relaxed);
                            }
                            410 => gone += 1,
                            404 => {}
                            status => panic!("{status}"),
                        }
                    }
                });
            }
        });
        let mut followed = followed.into_inner();
        assert!(followed <= limit, "{followed} of {limit}");
        // Granted clicks that were not needed are returned, so all of them are answered in the end.
        let mut clients = servers.each_ref().map(|server| server.connect());
        until("all clicks are answered", || {
            for client in &mut clients {
                followed += u64::from(ask(client, &code).0 == 307);
            }
            followed >= limit
        });
        for client in &mut clients {
            assert_eq!(ask(client, &code).0, 410, "{code}");
        }
        assert_eq!(followed, limit);
        until("all clicks are counted", || api.clicks(&code) >= limit);
        assert_eq!(api.clicks(&code), limit);
    }
    let all = api.ask("GET", "/limit-100/stats", "").expect("an answer");
    let stats: serde_json::Value = serde_json::from_slice(&all.body).expect("JSON");
    assert_eq!(stats["clicks"], 100, "{stats}");
    for server in servers {
        server.stop();
    }
}
