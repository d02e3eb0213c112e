//! The order of eviction: S3-FIFO (Yang et al., SOSP 2023), with bytes instead of counts.
//!
//! New items wait in a small queue with a tenth of the bytes. Items that are used again there move on to the main
//! queue. The others are evicted, and only their ids are remembered for a while. If such an item is inserted again, it
//! goes to the main queue at once. There, each use gives it another round. So a scan of items that nobody requests
//! twice only passes through a tenth of the cache.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How many uses count. Further ones give no more rounds.
const MOST_USES: u8 = 3;

/// The percentage of the bytes that the small queue gets.
const SMALL_SHARE: u64 = 10;

/// The fewest ids that are remembered.
const GHOSTS: usize = 1024;

/// What a queue stores about an item.
#[derive(Debug, Default)]
pub struct Ticket {
    uses: AtomicU8,
    is_main: AtomicBool,
    gone: AtomicBool,
    bytes: AtomicU64,
}

impl Ticket {
    /// Counts it as used.
    pub fn used(&self) {
        let _ = self.uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uses| {
            (uses < MOST_USES).then_some(uses + 1)
        });
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it was evicted or removed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// Something that can be queued.
pub trait Item {
    /// What the queue stores about it.
    fn ticket(&self) -> &Ticket;
    /// The id by which an evicted item is remembered.
    fn id(&self) -> u64;
}

/// The queues.
#[derive(Debug)]
pub struct Queue<T> {
    small: VecDeque<T>,
    main: VecDeque<T>,
    small_bytes: u64,
    main_bytes: u64,
    /// How many items are in the queues and not removed.
    live: usize,
    ghosts: VecDeque<u64>,
    remembered: HashSet<u64>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            live: 0,
            ghosts: VecDeque::new(),
            remembered: HashSet::new(),
        }
    }
}

impl<T: Item> Queue<T> {
    /// Adds a new item. `proven` says whether it goes to the main queue at once.
    pub fn insert(&mut self, item: T, proven: bool) {
        let is_main = self.remembered.remove(&item.id()) || proven;
        item.ticket().is_main.store(is_main, Ordering::Relaxed);
        let bytes = item.ticket().bytes();
        self.live += 1;
        if is_main {
            self.main_bytes += bytes;
            self.main.push_back(item);
        } else {
            self.small_bytes += bytes;
            self.small.push_back(item);
        }
    }

    /// An item has grown by this many bytes.
    pub fn grow(&mut self, ticket: &Ticket, bytes: u64) {
        ticket.bytes.fetch_add(bytes, Ordering::Relaxed);
        if !ticket.is_gone() {
            *self.bytes_of(ticket) += bytes;
        }
    }

    /// An item has shrunk by this many bytes.
    pub fn shrink(&mut self, ticket: &Ticket, bytes: u64) {
        ticket.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if !ticket.is_gone() {
            let all = self.bytes_of(ticket);
            *all = all.saturating_sub(bytes);
        }
    }

    fn bytes_of(&mut self, ticket: &Ticket) -> &mut u64 {
        if ticket.is_main.load(Ordering::Relaxed) { &mut self.main_bytes } else { &mut self.small_bytes }
    }

    /// Records that an item has been removed. It leaves its queue later.
    pub fn remove(&mut self, ticket: &Ticket) {
        if ticket.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        let bytes = ticket.bytes();
        let all = self.bytes_of(ticket);
        *all = all.saturating_sub(bytes);
        self.live -= 1;
        if self.small.len() + self.main.len() > 2 * self.live + GHOSTS {
            self.small.retain(|item| !item.ticket().is_gone());
            self.main.retain(|item| !item.ticket().is_gone());
        }
    }

    /// Removes the item that should be evicted first, among those for which `may` is true.
    pub fn evict(&mut self, may: impl Fn(&T) -> bool) -> Option<T> {
        // Each item has at most as many rounds as uses, and one in the small queue.
        let mut rounds = (self.small.len() + self.main.len()) * (usize::from(MOST_USES) + 2);
        while rounds > 0 {
            rounds -= 1;
            let all = self.small_bytes + self.main_bytes;
            let from_small = !self.small.is_empty()
                && (self.main.is_empty()
                    || self.small_bytes.saturating_mul(100) >= all.saturating_mul(SMALL_SHARE));
            let item = if from_small { self.small.pop_front() } else { self.main.pop_front() }?;
            let ticket = item.ticket();
            if ticket.is_gone() {
                continue;
            }
            let uses = ticket.uses.load(Ordering::Relaxed);
            if from_small && (uses > 0 || !may(&item)) {
                ticket.is_main.store(true, Ordering::Relaxed);
                ticket.uses.store(0, Ordering::Relaxed);
                self.small_bytes = self.small_bytes.saturating_sub(ticket.bytes());
                self.main_bytes += ticket.bytes();
                self.main.push_back(item);
            } else if !from_small && (uses > 0 || !may(&item)) {
                ticket.uses.store(uses.saturating_sub(1), Ordering::Relaxed);
                self.main.push_back(item);
            } else {
                self.remove(ticket);
                if from_small {
                    self.remember(item.id());
                }
                return Some(item);
            }
        }
        None
    }

    fn remember(&mut self, id: u64) {
        if self.remembered.insert(id) {
            self.ghosts.push_back(id);
        }
        while self.ghosts.len() > self.live.max(GHOSTS) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.remembered.remove(&oldest);
            }
        }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug)]
    struct Thing(u64, Ticket);

    impl Item for Arc<Thing> {
        fn ticket(&self) -> &Ticket {
            &self.1
        }
        fn id(&self) -> u64 {
            self.0
        }
    }

    fn thing(queue: &mut Queue<Arc<Thing>>, id: u64, bytes: u64) -> Arc<Thing> {
        let made = Arc::new(Thing(id, Ticket::default()));
        queue.insert(Arc::clone(&made), false);
        queue.grow(&made.1, bytes);
        made
    }

    fn evicted(queue: &mut Queue<Arc<Thing>>) -> Option<u64> {
        queue.evict(|_| true).map(|thing| thing.0)
    }

    #[test]
    fn what_is_asked_for_again_outlives_a_scan() {
        let mut queue = Queue::default();
        let hot: Vec<_> = (0..10).map(|id| thing(&mut queue, id, 10)).collect();
        hot.iter().for_each(|thing| thing.1.used());
        let mut left = Vec::new();
        for id in 100..1100 {
            thing(&mut queue, id, 10);
            if queue.len() > 20 {
                left.extend(evicted(&mut queue));
            }
        }
        assert_eq!(left.len(), 990);
        assert!(left.iter().all(|id| *id >= 100), "{left:?}");
    }

    #[test]
    fn what_comes_back_soon_is_kept_longer() {
        let mut queue = Queue::default();
        for id in 0..10 {
            thing(&mut queue, id, 10);
        }
        assert_eq!(evicted(&mut queue), Some(0));
        let back = thing(&mut queue, 0, 10);
        assert!(back.1.is_main.load(Ordering::Relaxed));
        let order: Vec<_> = std::iter::from_fn(|| evicted(&mut queue)).collect();
        assert_eq!(order, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        assert!(queue.is_empty());
        assert_eq!((queue.small_bytes, queue.main_bytes), (0, 0));
    }

    #[test]
    fn what_may_not_go_stays_and_the_search_ends() {
        let mut queue = Queue::default();
        for id in 0..5 {
            let thing = thing(&mut queue, id, 10);
            (0..9).for_each(|_| thing.1.used());
        }
        assert!(queue.evict(|_| false).is_none());
        assert_eq!(queue.len(), 5);
        assert_eq!(queue.evict(|thing| thing.0 == 3).map(|thing| thing.0), Some(3));
    }

    #[test]
    fn bytes_and_numbers_hold_whatever_happens() {
        let mut queue = Queue::default();
        let things: Vec<_> = (0..5000).map(|id| thing(&mut queue, id, id % 7)).collect();
        for (at, thing) in things.iter().enumerate() {
            match at % 5 {
                0 => queue.remove(&thing.1),
                1 => queue.grow(&thing.1, 3),
                2 => thing.1.used(),
                3 => {
                    evicted(&mut queue);
                }
                _ => queue.shrink(&thing.1, thing.1.bytes()),
            }
        }
        let live = things.iter().filter(|thing| !thing.1.is_gone());
        assert_eq!(queue.len(), live.clone().count());
        assert_eq!(queue.small_bytes + queue.main_bytes, live.map(|thing| thing.1.bytes()).sum::<u64>());
    }
}
