//! Clients that write and read all the time, and what they have seen.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::place::{ask, user, value};

/// How far behind a cached read may be, as the nodes are told.
pub const BOUND: Duration = Duration::from_secs(1);

/// What was seen; all clients share it.
#[derive(Default)]
pub struct Seen {
    pub over: AtomicBool,
    /// Users whose creation was acknowledged, when, and by which node.
    pub created: Mutex<Vec<(String, Instant, usize)>>,
    pub refused: AtomicU64,
    /// Versions of the one user that all read, as they were acknowledged.
    versions: Mutex<Vec<(i64, Instant)>>,
    pub reads: AtomicU64,
    /// Those that said that the database is away.
    pub lingering: AtomicU64,
    /// Those that were refused.
    pub failed: AtomicU64,
    /// Those that were older than the bound and did not say so.
    pub stale: AtomicU64,
    pub slowest: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn on(&self) -> bool {
        !self.over.load(Relaxed)
    }

    /// Creates users.
    pub fn create(&self, node: usize, address: SocketAddr, writer: u32) {
        let mut client = Client::connect(address);
        for number in 0.. {
            if !self.on() {
                return;
            }
            let body = user(&format!("n{node}.{writer}.{number}@example.org")).to_string();
            let answer = ask(&mut client, "POST", "/v1/users", "Content-Type: application/json\r\n", &body);
            match answer.status {
                201 => {
                    let id = value(&answer)["id"].as_str().expect("an id").to_owned();
                    lock(&self.created).push((id, Instant::now(), node));
                }
                503 => {
                    self.refused.fetch_add(1, Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
                status => panic!("{status}: {}", answer.text()),
            }
        }
    }

    /// Changes one user again and again.
    pub fn change(&self, address: SocketAddr, path: &str) {
        let mut client = Client::connect(address);
        for number in 0.. {
            if !self.on() {
                return;
            }
            let body = json!({ "name": format!("name {number}") }).to_string();
            let answer =
                ask(&mut client, "PATCH", path, "Content-Type: application/merge-patch+json\r\n", &body);
            if answer.status == 200 {
                let version = value(&answer)["version"].as_i64().expect("a version");
                lock(&self.versions).push((version, Instant::now()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads that user, and looks whether it is as new as it has to be.
    pub fn read(&self, address: SocketAddr, path: &str) {
        let mut client = Client::connect(address);
        while self.on() {
            let begin = Instant::now();
            let least = {
                let versions = lock(&self.versions);
                versions.iter().rev().find(|(_, at)| *at + BOUND <= begin).map_or(0, |(version, _)| *version)
            };
            let answer = ask(&mut client, "GET", path, "", "");
            let took = begin.elapsed().as_millis() as u64;
            self.slowest.fetch_max(took, Relaxed);
            self.reads.fetch_add(1, Relaxed);
            match answer.status {
                200 if answer.field("cache-status").is_some_and(|field| field.contains("database-away")) => {
                    self.lingering.fetch_add(1, Relaxed);
                }
                200 => {
                    if value(&answer)["version"].as_i64().expect("a version") < least {
                        self.stale.fetch_add(1, Relaxed);
                    }
                }
                503 => {
                    self.failed.fetch_add(1, Relaxed);
                }
                status => panic!("{status}: {}", answer.text()),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The longest time without an acknowledged write of a node since an instant.
    pub fn gap(&self, node: usize, since: Instant) -> Duration {
        let created = lock(&self.created);
        let times = created.iter().filter(|(_, at, by)| *by == node && *at >= since).map(|(_, at, _)| *at);
        let mut last = since;
        let mut longest = Duration::ZERO;
        for at in times {
            longest = longest.max(at - last);
            last = at;
        }
        longest.max(last.elapsed())
    }

    /// How many writes of a node were acknowledged.
    pub fn acknowledged(&self, node: usize) -> usize {
        lock(&self.created).iter().filter(|(_, _, by)| *by == node).count()
    }
}
