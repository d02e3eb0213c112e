//! `kill -9` under mixed load: every acknowledged write is there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::Client;
use crate::server::{Api, Place, Server, alone, random};

const ROUNDS: usize = 20;
const WRITERS: usize = 3;
const VISITORS: usize = 2;

/// The link that the visitors follow. No writer changes it.
const VISITED: &str = "visited";

/// What a crash may lose: the clicks of one flush interval. If the disk delays a commit, it delays clicks too, by as
/// much as the slowest write of the round. If the machine delays threads, it delays clicks by as much as it delays our
/// threads; half a second is for the delays of the server's threads alone.
const UNFLUSHED: Duration = Duration::from_millis(1500);

/// How long [`hold_up`] intends to sleep.
const NAP: Duration = Duration::from_millis(5);

/// What one writer knows about its links: the target of each, or that it is deleted.
#[derive(Default)]
struct Writer {
    known: HashMap<String, Option<String>>,
    live: Vec<String>,
    /// Changed since the last check.
    touched: Vec<String>,
    /// A write that was sent but not acknowledged: either state is correct.
    doubtful: Option<(String, Option<String>)>,
    made: usize,
    /// The longest that a write has waited for its answer, or for the crash.
    slowest: Duration,
}

impl Writer {
    /// Writes until the server is gone.
    fn run(&mut self, name: usize, api: &mut Api) {
        while self.write(name, api) {}
    }

    fn write(&mut self, name: usize, api: &mut Api) -> bool {
        let target = format!("https://t.example/{}", random(u64::MAX));
        let choice = if self.live.is_empty() { 0 } else { random(10) };
        let at = random(self.live.len().max(1) as u64) as usize;
        let (code, state, expected) = match choice {
            0..5 => {
                self.made += 1;
                (format!("w{name}-{}", self.made), Some(target.clone()), 201)
            }
            5..8 => (self.live[at].clone(), Some(target.clone()), 200),
            _ => (self.live.swap_remove(at), None, 204),
        };
        self.touched.push(code.clone());
        self.doubtful = Some((code.clone(), state.clone()));
        let started = Instant::now();
        let status = match expected {
            201 => api.create(&code, &target),
            200 => api.edit(&code, &json!({ "target": target })),
            _ => api.delete(&code),
        };
        self.slowest = self.slowest.max(started.elapsed());
        let Ok(status) = status else { return false };
        assert_eq!(status, expected, "{code}");
        if expected == 201 {
            self.live.push(code.clone());
        }
        self.known.insert(code, state);
        self.doubtful = None;
        true
    }

    /// Compares the links with the expected ones, and records what happened to the doubtful write.
    fn check(&mut self, codes: Vec<String>, client: &mut Client) {
        for code in codes {
            client.send(format!("HEAD /{code} HTTP/1.1\r\nHost: s.example\r\n\r\n")).unwrap();
            let answer = client.receive_head().unwrap();
            let found = (answer.status == 307).then(|| answer.location().to_owned());
            assert!(found.is_some() || answer.status == 404, "{code}: {answer:?}");
            let known = self.known.get(&code).cloned().flatten();
            if found != known {
                assert_eq!(self.doubtful, Some((code.clone(), found.clone())), "acknowledged was {known:?}");
            }
            self.live.retain(|live| *live != code);
            if found.is_some() {
                self.live.push(code.clone());
            }
            self.known.insert(code, found);
        }
        self.doubtful = None;
    }
}

/// Follows a link until the server is gone. Returns when each answer arrived.
fn visit(address: SocketAddr, sent: &AtomicU64) -> Vec<Instant> {
    let mut client = Client::connect(address).unwrap();
    let mut answered = Vec::new();
    loop {
        sent.fetch_add(1, Ordering::Relaxed);
        match client.get(VISITED) {
            Ok(answer) => assert_eq!(answer.status, 307),
            Err(_) => return answered,
        }
        answered.push(Instant::now());
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The longest delay with which this machine woke up one of our threads, until `until` is set.
fn hold_up(until: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !until.load(Ordering::Relaxed) {
        let asleep = Instant::now();
        std::thread::sleep(NAP);
        longest = longest.max(asleep.elapsed().saturating_sub(NAP));
    }
    longest
}

/// Loads the server, and kills it at a random moment. Returns the number of visits that must be stored, and the number
/// of all visits that were sent.
fn round(server: Server, writers: &mut [Writer]) -> (u64, u64) {
    let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let public = server.public;
    for writer in &mut *writers {
        writer.slowest = Duration::ZERO;
    }
    let mut apis: Vec<_> = writers.iter().map(|_| server.api()).collect();
    std::thread::scope(|scope| {
        let mut writing = Vec::new();
        for (name, (writer, api)) in writers.iter_mut().zip(&mut apis).enumerate() {
            writing.push(scope.spawn(move || {
                writer.run(name, api);
                writer.slowest
            }));
        }
        let visitors: Vec<_> = (0..VISITORS).map(|_| scope.spawn(|| visit(public, &sent))).collect();
        let over = &over;
        let held_up = scope.spawn(move || hold_up(over));
        std::thread::sleep(Duration::from_millis(100 + random(2700)));
        let killed = Instant::now();
        server.kill();
        over.store(true, Ordering::Relaxed);
        let slowest = writing.into_iter().map(|writer| writer.join().unwrap()).max().unwrap_or_default();
        let answered = visitors.into_iter().flat_map(|visitor| visitor.join().unwrap());
        // A tick, a flush and the write each wait for a thread to wake up.
        let late = 3 * held_up.join().unwrap();
        // A write may have been in progress when the click arrived, and the next write, which should contain the click,
        // wasn't finished.
        let old = answered.filter(|&at| at + UNFLUSHED + 2 * slowest + late < killed).count() as u64;
        (old, sent.load(Ordering::Relaxed))
    })
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let _alone = alone();
    let place = Place::new();
    let mut writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    let mut server = place.serve(&[]);
    assert_eq!(server.api().create(VISITED, "https://t.example/").unwrap(), 201);
    for number in 0..ROUNDS {
        let before = server.api().clicks(VISITED);
        let (sure, sent) = round(server, &mut writers);

        let check = place.command(&["check"]).unwrap();
        assert!(check.status.success(), "round {number}: {}", String::from_utf8_lossy(&check.stdout));
        server = place.serve(&[]);
        let stored = server.api().clicks(VISITED) - before;
        assert!((sure..=sent).contains(&stored), "round {number}: {stored} clicks of {sure} to {sent}");
        for writer in &mut writers {
            let touched = std::mem::take(&mut writer.touched);
            writer.check(touched, &mut server.connect());
        }
    }
    let mut acknowledged = 0;
    for writer in &mut writers {
        let all: Vec<_> = writer.known.keys().cloned().collect();
        acknowledged += all.len();
        writer.check(all, &mut server.connect());
    }
    assert!(acknowledged > ROUNDS, "only {acknowledged} links: that was no load");
    server.stop();
}
