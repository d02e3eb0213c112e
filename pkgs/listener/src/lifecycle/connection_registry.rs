//! The deadlines of connections.
//!
//! A deadline is a number of ticks. Moving it is a single store, so requests arm no timers. A few times a second, the
//! worker wakes the connections whose deadline has passed, and each decides what to do.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::times::{DrainTimes, ticks};

/// How long a client has to close an idle connection after it was asked to, while the server goes on.
const GOODBYE: Duration = Duration::from_secs(1);

/// From here on, every answer is its connection's last.
const DRAINING: u8 = 1;
/// The connection ends at once.
const CUT: u8 = 2;

/// The worker's last reading of the clock.
#[derive(Debug)]
pub struct Clock {
    tick: AtomicU32,
    /// Seconds since 1970.
    second: AtomicU64,
}

impl Clock {
    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// The current time in seconds since 1970, at most a tick old.
    pub fn second(&self) -> u64 {
        self.second.load(Relaxed)
    }
}

/// The connections of a worker.
#[derive(Debug)]
pub struct ConnectionRegistry {
    /// The current time.
    pub clock: Clock,
    times: DrainTimes,
    open: Mutex<Vec<Arc<ConnectionDeadline>>>,
    /// The initial flags of new connections.
    flags: AtomicU8,
}

/// A connection's deadline, and its task.
#[derive(Debug)]
pub struct ConnectionDeadline {
    deadline: AtomicU32,
    /// The tick since which it waits for its client.
    since: AtomicU32,
    /// Whether the service waits for more of a body over HTTP/1.1, which has deadlines of its own.
    awaits_body: AtomicBool,
    /// The HTTP/2 streams that the service works on, less those whose body it waits for.
    serving: AtomicI32,
    flags: AtomicU8,
    ended: AtomicBool,
    /// The connection's task, which never changes. Released at the connection's end, since it holds the task's memory.
    task: Mutex<Option<Waker>>,
}

impl ConnectionRegistry {
    /// An empty registry. When draining, connections get these times.
    pub fn new(times: DrainTimes) -> Self {
        let clock = Clock { tick: AtomicU32::new(0), second: AtomicU64::new(Clock::now()) };
        Self { clock, times, open: Mutex::default(), flags: AtomicU8::new(0) }
    }

    /// Adds a connection that has `time` to send something. It counts until the future of `ConnectionDeadline::run` is
    /// done or dropped.
    pub fn begin(&self, time: Duration) -> Arc<ConnectionDeadline> {
        let deadline = Arc::new(ConnectionDeadline {
            deadline: AtomicU32::new(self.after(time)),
            since: AtomicU32::new(self.clock.tick.load(Relaxed)),
            awaits_body: AtomicBool::new(false),
            serving: AtomicI32::new(0),
            flags: AtomicU8::new(0),
            ended: AtomicBool::new(false),
            task: Mutex::default(),
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that no change for all connections is missed.
        deadline.flags.store(self.flags.load(Relaxed), Relaxed);
        if open.len() == open.capacity() {
            // Remove the connections that have ended since the last tick. Leave room to double what is left, since this
            // visits all of them.
            open.retain(|deadline| !deadline.ended.load(Relaxed));
            let open_now = open.len();
            open.reserve(open_now.max(1));
        }
        open.push(Arc::clone(&deadline));
        deadline
    }

    /// Advances the clock, and wakes the connections whose time is up. Call this every [`TICK`](super::TICK).
    pub fn tick(&self) {
        self.clock.second.store(Clock::now(), Relaxed);
        let now = self.clock.tick.load(Relaxed).saturating_add(1);
        self.clock.tick.store(now, Relaxed);
        self.each(|deadline| {
            if deadline.deadline.load(Relaxed) <= now {
                deadline.wake();
            }
        });
    }

    /// Tells all current and future connections to end after their running requests.
    pub fn drain(&self) {
        self.flag(DRAINING);
    }

    /// Tells all current and future connections to end at once.
    pub fn cut(&self) {
        self.flag(CUT);
    }

    /// Cuts the connection that has waited longest for its client. Returns whether there is one. Of several with the
    /// same wait, it is the oldest. Connections whose request is being served do not count.
    pub fn make_room(&self) -> bool {
        let mut longest: Option<(u32, Arc<ConnectionDeadline>)> = None;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for deadline in open.iter().filter(|deadline| deadline.waits()) {
            let since = deadline.since.load(Relaxed);
            if longest.as_ref().is_none_or(|(earliest, _)| since < *earliest) {
                longest = Some((since, Arc::clone(deadline)));
            }
        }
        drop(open);
        longest.is_some_and(|(_, deadline)| {
            deadline.flags.fetch_or(CUT, Relaxed);
            deadline.wake();
            true
        })
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        let mut open = 0;
        self.each(|_| open += 1);
        open
    }

    /// How long a connection without a request is kept after its client was asked to close it: a delayed client may
    /// have sent a request before it learns of that.
    pub fn parting(&self, draining: bool) -> Duration {
        if draining { self.grace() } else { GOODBYE }
    }

    /// How long a connection without a request is kept when draining.
    pub fn grace(&self) -> Duration {
        self.times.grace()
    }

    fn flag(&self, flag: u8) {
        self.flags.fetch_or(flag, Relaxed);
        self.each(|deadline| {
            deadline.flags.fetch_or(flag, Relaxed);
            deadline.wake();
        });
    }

    fn each(&self, mut what: impl FnMut(&ConnectionDeadline)) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|deadline| {
            let open = !deadline.ended.load(Relaxed);
            if open {
                what(deadline);
            }
            open
        });
    }

    fn after(&self, time: Duration) -> u32 {
        let ticks = ticks(time);
        // One more, since the current tick is partly over.
        self.clock.tick.load(Relaxed).saturating_add(ticks).saturating_add(1)
    }
}

impl ConnectionDeadline {
    /// Sets the deadline to `time` from now.
    #[inline]
    pub fn set(&self, registry: &ConnectionRegistry, time: Duration) {
        self.deadline.store(registry.after(time), Relaxed);
        self.since.store(registry.clock.tick.load(Relaxed), Relaxed);
    }

    /// Removes the deadline.
    #[inline]
    pub fn clear(&self) {
        self.deadline.store(u32::MAX, Relaxed);
    }

    /// Whether the service waits for more of the body of an HTTP/1.1 request.
    #[inline]
    pub fn set_awaits_body(&self, registry: &ConnectionRegistry, awaits: bool) {
        if awaits && !self.awaits_body.load(Relaxed) {
            self.since.store(registry.clock.tick.load(Relaxed), Relaxed);
        }
        self.awaits_body.store(awaits, Relaxed);
    }

    /// The service works on another HTTP/2 stream, or no longer waits for a stream's body.
    pub fn begin_serving(&self) {
        self.serving.fetch_add(1, Relaxed);
    }

    /// The opposite. If this was the last one, the connection waits for its client from here on.
    pub fn end_serving(&self, registry: &ConnectionRegistry) {
        if self.serving.fetch_sub(1, Relaxed) == 1 {
            self.since.store(registry.clock.tick.load(Relaxed), Relaxed);
        }
    }

    /// Whether the deadline has passed.
    #[inline]
    pub fn has_passed(&self, registry: &ConnectionRegistry) -> bool {
        self.deadline.load(Relaxed) <= registry.clock.tick.load(Relaxed)
    }

    /// Whether the connection is to end after its running requests.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.flags.load(Relaxed) & DRAINING != 0
    }

    /// Runs the code that serves the connection, as the whole of a task, until it is done or the connection is cut.
    pub async fn run(&self, mut serving: Pin<&mut impl Future<Output = ()>>) {
        let _ended = Ended(self);
        let mut known = false;
        std::future::poll_fn(|context| {
            if !known {
                known = true;
                *self.task() = Some(context.waker().clone());
            }
            if self.flags.load(Relaxed) & CUT != 0 {
                return Poll::Ready(());
            }
            serving.as_mut().poll(context)
        })
        .await;
    }

    /// Runs a part of that code before there is a request. `None` if its time is up first. While draining, it has at
    /// most the [grace](ConnectionRegistry::grace) of the registry.
    pub async fn timeout<T>(
        &self,
        registry: &ConnectionRegistry,
        part: impl Future<Output = T>,
    ) -> Option<T> {
        let mut part = pin!(part);
        std::future::poll_fn(|context: &mut Context<'_>| match part.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => {
                if self.is_draining() {
                    self.deadline.fetch_min(registry.after(registry.grace()), Relaxed);
                }
                if self.has_passed(registry) { Poll::Ready(None) } else { Poll::Pending }
            }
        })
        .await
    }

    /// Whether it waits for its client, and is not already ending.
    fn waits(&self) -> bool {
        let ends = self.ended.load(Relaxed) || self.flags.load(Relaxed) & CUT != 0;
        let waits = self.deadline.load(Relaxed) != u32::MAX || self.awaits_body.load(Relaxed);
        !ends && waits && self.serving.load(Relaxed) <= 0
    }

    fn wake(&self) {
        if let Some(task) = &*self.task() {
            task.wake_by_ref();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a connection as ended, however its task ends.
struct Ended<'a>(&'a ConnectionDeadline);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
        self.0.task().take();
    }
}

#[cfg(test)]
mod tests {
    use super::super::times::TICK;
    use super::*;

    const TIMES: DrainTimes = DrainTimes::new(TICK, TICK);

    #[tokio::test]
    async fn a_connection_is_woken_when_its_time_is_up() {
        let registry = Arc::new(ConnectionRegistry::new(TIMES));
        let deadline = registry.begin(TICK);
        let task = tokio::spawn({
            let (registry, deadline) = (Arc::clone(&registry), Arc::clone(&deadline));
            async move {
                let waiting = pin!(async {
                    assert_eq!(deadline.timeout(&registry, std::future::pending::<()>()).await, None);
                });
                deadline.run(waiting).await;
            }
        });
        tokio::task::yield_now().await;
        registry.tick();
        tokio::task::yield_now().await;
        assert!(!task.is_finished() && registry.open() == 1, "part of a tick is no tick");
        registry.tick();
        task.await.expect("it ends");
        assert_eq!(registry.open(), 0);
    }

    #[tokio::test]
    async fn a_cut_ends_what_would_wait_for_ever() {
        let registry = Arc::new(ConnectionRegistry::new(TIMES));
        let deadline = registry.begin(TICK);
        deadline.clear();
        let task = tokio::spawn(async move { deadline.run(pin!(std::future::pending())).await });
        tokio::task::yield_now().await;
        registry.drain();
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        registry.cut();
        task.await.expect("it ends");
    }

    #[test]
    fn who_has_kept_the_server_waiting_for_longest_makes_room() {
        let registry = ConnectionRegistry::new(TIMES);
        let [first, second, third, fourth] = [(); 4].map(|()| registry.begin(TICK));
        registry.tick();
        // First a whole request was read, then the start of one.
        first.clear();
        second.set(&registry, TICK);
        let cut = |deadline: &ConnectionDeadline| deadline.flags.load(Relaxed) & CUT != 0;
        let seen = || [&first, &second, &third, &fourth].map(|deadline| cut(deadline));
        for expected in [[false, false, true, false], [false, false, true, true], [false, true, true, true]] {
            assert!(registry.make_room());
            assert_eq!(seen(), expected);
        }
        assert!(!registry.make_room(), "what is served is not cut, nor anything twice");
        assert_eq!(seen(), [false, true, true, true]);
    }

    #[test]
    fn a_body_that_does_not_come_makes_room_and_a_stream_that_is_served_does_not() {
        let registry = ConnectionRegistry::new(TIMES);
        let [body, streams] = [(); 2].map(|()| registry.begin(TICK));
        body.clear();
        streams.begin_serving();
        streams.begin_serving();
        let waiting = || [&body, &streams].map(|deadline| deadline.waits());
        assert_eq!(waiting(), [false, false]);
        registry.tick();
        body.set_awaits_body(&registry, true);
        streams.end_serving(&registry);
        assert_eq!(waiting(), [true, false], "one stream is still served");
        registry.tick();
        body.set_awaits_body(&registry, true);
        streams.end_serving(&registry);
        assert_eq!(waiting(), [true, true]);
        assert_eq!([&body, &streams].map(|deadline| deadline.since.load(Relaxed)), [1, 2]);
        body.set_awaits_body(&registry, false);
        streams.begin_serving();
        assert_eq!(waiting(), [false, false]);
    }

    #[tokio::test]
    async fn those_that_come_and_go_are_not_kept() {
        let registry = ConnectionRegistry::new(TIMES);
        let held = [(); 10].map(|()| registry.begin(TICK));
        for _ in 0..10_000 {
            registry.begin(TICK).run(pin!(std::future::ready(()))).await;
        }
        let kept = registry.open.lock().expect("no panic").len();
        assert!(kept < 4 * held.len(), "{kept} are kept");
        assert_eq!(registry.open(), held.len());
    }

    #[test]
    fn those_that_come_late_are_told_too() {
        let registry = ConnectionRegistry::new(TIMES);
        registry.drain();
        assert!(registry.begin(TICK).is_draining());
    }
}
