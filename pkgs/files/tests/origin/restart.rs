//! What is left of a cache whose server was killed.

use rustix::process::Signal;

use crate::fixture::Fixture;
use crate::meddler::Fault;
use crate::place::{pattern, until};

const MIB: usize = 1 << 20;

#[test]
fn a_server_killed_while_it_fills_goes_on_where_it_was() {
    let Some(fixture) = Fixture::new("a_server_killed_while_it_fills_goes_on_where_it_was") else { return };
    let all = pattern(9 * MIB + 123);
    fixture.gateway.put("f", &all, &[]);
    fixture.gateway.put("whole", &all[..5000], &[]);
    let mut fetched = 0;
    // The server is killed at different places: while a block is half sent, and before the first byte of one.
    for (round, after) in [(0, 100_000), (1, 0), (2, 1_000_000)] {
        let server = fixture.serve(&["--origin-memory", "1048576"]);
        assert!(server.get("/whole", "").body == all[..5000]);
        let from = round * 3 * MIB;
        let part = server.get("/f", &format!("Range: bytes={from}-{}\r\n", from + 9));
        assert_eq!(part.body, &all[from..from + 10], "{round}");
        fixture.meddler.set(Fault::HeldAfter(after));
        let mut client = server.connect();
        client.send(format!("GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes={}-\r\n\r\n", from + MIB));
        until("a block is under way", || fixture.meddler.waiting() > 0);
        fetched += server.metric("linerate_origin_fetched_blocks_total") as usize;
        server.signal(Signal::KILL);
        drop(server);
        fixture.meddler.set(Fault::None);
    }
    assert!((3..=9).contains(&fetched), "{fetched}");
    fixture.meddler.asked();
    let server = fixture.serve(&[]);
    assert!(server.get("/f", "").body == all);
    assert!(server.get("/whole", "").body == all[..5000]);
    // What was stored is only revalidated, and the rest is fetched.
    let again = server.metric("linerate_origin_fetched_blocks_total") as usize;
    assert!(again < 10 && again + fetched >= 10, "{again} after {fetched}");
    assert!(server.metric("linerate_origin_lookups_total{from=\"origin_unchanged\"}") >= 2.0);
}

#[test]
fn a_whole_cache_is_served_by_a_server_that_finds_no_origin() {
    let Some(fixture) = Fixture::new("a_whole_cache_is_served_by_a_server_that_finds_no_origin") else {
        return;
    };
    let all = pattern(2 * MIB + 1);
    fixture.gateway.put("f", &all, &[]);
    let server = fixture.serve(&[]);
    assert!(server.get("/f", "").body == all);
    until("all is stored", || server.metric("linerate_origin_cache_bytes") > 2.0 * MIB as f64);
    server.signal(Signal::KILL);
    drop(server);
    fixture.meddler.set(Fault::Gone);
    let server = fixture.serve(&[]);
    assert!(server.get("/f", "").body == all, "{}", server.log());
}
