//! Other nodes' writes, from the feed of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use postgres::Heard;
use tokio::sync::Notify;

use crate::domains::{DomainId, LinkKey};
use crate::store::{Change, Watch};

/// Passes the changes from the feed to a watch.
pub struct Follower {
    pub watch: Arc<dyn Watch>,
    pub domains: Arc<DomainsWanted>,
}

/// Whether domains have changed and have not been read since.
#[derive(Default)]
pub struct DomainsWanted {
    /// The number of changes.
    wanted: AtomicU64,
    /// The number of changes that were read.
    read: AtomicU64,
    changed: Notify,
}

impl DomainsWanted {
    /// Records a change.
    pub fn change(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Call this before reading the domains. Returns the number for [`done`](Self::done).
    pub fn begin(&self) -> u64 {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Records that the domains were read after the call of [`begin`](Self::begin) that returned `begun`.
    pub fn done(&self, begun: u64) {
        self.read.fetch_max(begun, Ordering::SeqCst);
    }

    /// Waits until the domains have to be read.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn is_read(&self) -> bool {
        self.read.load(Ordering::SeqCst) >= self.wanted.load(Ordering::SeqCst)
    }
}

impl Heard for Follower {
    fn changed(&self, change: postgres::Change<'_>) {
        match change {
            postgres::Change::Row { topic: "link", keys } => {
                match keys.iter().map(|key| key_of(key)).collect::<Option<Vec<_>>>() {
                    Some(keys) => self.watch.changed(Change::Codes(&keys)),
                    None => self.watch.changed(Change::All),
                }
            }
            postgres::Change::Row { topic: "domains", .. } => self.domains.change(),
            // A newer version may report other kinds of changes.
            postgres::Change::Row { .. } | postgres::Change::All => {
                self.domains.change();
                self.watch.changed(Change::All);
            }
        }
    }

    fn heard_all_before(&self, instant: Instant) {
        // A change of domains is known only once the domains are read.
        if self.domains.is_read() {
            self.watch.heard_all_before(instant);
        }
    }

    fn away(&self) {
        self.watch.away();
    }
}

/// A link's key from the database's text.
pub fn key_of(text: &str) -> Option<LinkKey> {
    let (domain, code) = text.split_once('/')?;
    Some(LinkKey { domain: DomainId(domain.parse().ok()?), code: code.to_owned() })
}

/// The database's text of a link's key.
pub fn text_of(domain: DomainId, code: &str) -> String {
    format!("{}/{code}", domain.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Watch for Told {
        fn changed(&self, change: Change<'_>) {
            self.0.lock().expect("no panic").push(match change {
                Change::All => "all".to_owned(),
                Change::Codes(keys) => {
                    keys.iter().map(|key| text_of(key.domain, &key.code)).collect::<Vec<_>>().join(" ")
                }
            });
        }

        fn heard_all_before(&self, _: Instant) {
            self.0.lock().expect("no panic").push("heard".to_owned());
        }

        fn away(&self) {}
    }

    #[test]
    fn what_is_heard_is_told_and_nothing_counts_as_heard_before_domains_are_read() {
        let told = Arc::new(Told::default());
        let follower = Follower { watch: told.clone(), domains: Arc::default() };
        let keys = ["0/abc".to_owned(), "7/x".to_owned()];
        follower.changed(postgres::Change::Row { topic: "link", keys: &keys });
        follower.heard_all_before(Instant::now());
        let begun = follower.domains.begin();
        follower.changed(postgres::Change::Row { topic: "domains", keys: &[] });
        follower.heard_all_before(Instant::now());
        follower.domains.done(begun);
        follower.heard_all_before(Instant::now());
        follower.domains.done(follower.domains.begin());
        follower.heard_all_before(Instant::now());
        follower.changed(postgres::Change::Row { topic: "link", keys: &["abc".to_owned()] });
        follower.changed(postgres::Change::Row { topic: "of a newer release", keys: &[] });
        assert_eq!(*told.0.lock().expect("no panic"), ["0/abc 7/x", "heard", "heard", "all", "all"]);
    }
}
