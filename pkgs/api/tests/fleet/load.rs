//! Clients that constantly write and read, and a record of what they have seen.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::place::{ask, user, value};

/// How far behind a cached read may be, as the nodes are configured.
pub const BOUND: Duration = Duration::from_secs(1);

/// What was created: its name, when it was acknowledged, and by which node.
#[derive(Default)]
pub struct Writes(Mutex<Vec<(String, Instant, usize)>>);

impl Writes {
    pub fn note(&self, name: String, node: usize) {
        lock(&self.0).push((name, Instant::now(), node));
    }

    /// The longest time without an acknowledgement from a node since an instant.
    pub fn gap(&self, node: usize, since: Instant) -> Duration {
        let created = lock(&self.0);
        let times = created.iter().filter(|(_, at, by)| *by == node && *at >= since).map(|(_, at, _)| *at);
        let mut last = since;
        let mut longest = Duration::ZERO;
        for at in times {
            longest = longest.max(at - last);
            last = at;
        }
        longest.max(last.elapsed())
    }

    /// How many there are from a node.
    pub fn count(&self, node: usize) -> usize {
        lock(&self.0).iter().filter(|(_, _, by)| *by == node).count()
    }

    pub fn all(&self) -> Vec<String> {
        lock(&self.0).iter().map(|(name, ..)| name.clone()).collect()
    }
}

/// Versions of what changes again and again, and when they were acknowledged.
#[derive(Default)]
pub struct Versions(Mutex<Vec<(i64, Instant)>>);

impl Versions {
    pub fn note(&self, version: i64) {
        lock(&self.0).push((version, Instant::now()));
    }

    /// The lowest version that a read which starts now must have.
    pub fn least(&self, begin: Instant) -> i64 {
        let versions = lock(&self.0);
        versions.iter().rev().find(|(_, at)| *at + BOUND <= begin).map_or(0, |(version, _)| *version)
    }
}

/// What was seen; all clients share it.
#[derive(Default)]
pub struct Seen {
    pub over: AtomicBool,
    /// Users whose creation was acknowledged.
    pub created: Writes,
    pub refused: AtomicU64,
    /// The acknowledged versions of the one user that all read.
    versions: Versions,
    pub reads: AtomicU64,
    /// Reads that said that the database is away.
    pub lingering: AtomicU64,
    /// Refused reads.
    pub failed: AtomicU64,
    /// Reads older than the bound that didn't say so.
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
                    self.created.note(id, node);
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
                self.versions.note(value(&answer)["version"].as_i64().expect("a version"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads that user, and checks that it is new enough.
    pub fn read(&self, address: SocketAddr, path: &str) {
        let mut client = Client::connect(address);
        while self.on() {
            let begin = Instant::now();
            let least = self.versions.least(begin);
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
}
