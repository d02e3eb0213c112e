//! SIGTERM drains, and a second signal exits at once.
//!
//! If [another process](crate::handover) has taken over, a service manager's SIGTERM goes to both, and comes again once
//! the other has ended: this process continues to drain. If the other process died, the service manager restarts the
//! unit only after this process has ended too, so this one then exits at once.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Whether the process is to stop. Clones share it.
#[derive(Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    failed: Arc<AtomicBool>,
    /// The state of the process that took over: [`FOLLOWED`], [`TERMINATED`] and [`DIED`].
    next: Arc<AtomicU8>,
    at_first: Arc<Mutex<Vec<Hook>>>,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Another process has taken over.
const FOLLOWED: u8 = 1;
/// SIGTERM came since then.
const TERMINATED: u8 = 2;
/// That process has died.
const DIED: u8 = 4;

/// The exit code of shells for an end by SIGTERM.
const TERMINATED_CODE: i32 = 143;

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("triggered", &self.is_triggered()).finish_non_exhaustive()
    }
}

impl Shutdown {
    /// A shutdown that only [`trigger`](Self::trigger) triggers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A shutdown that SIGTERM or SIGINT triggers. A second of either exits at once, with 128 + its number as in
    /// shells: 143 or 130. SIGHUP keeps its default, which ends the process.
    ///
    /// A separate thread waits for signals, so this works with any runtime or none.
    ///
    /// # Errors
    /// When the handlers or the thread cannot be set up.
    pub fn on_signals() -> io::Result<Self> {
        Self::listen(None::<(SignalKind, fn())>)
    }

    /// Like [`on_signals`](Self::on_signals), but SIGHUP calls `on_hangup` on the signals' thread. While it runs, no
    /// other signal is noticed.
    ///
    /// # Errors
    /// When the handlers or the thread cannot be set up.
    pub fn on_signals_and_hangup(on_hangup: impl FnMut() + Send + 'static) -> io::Result<Self> {
        Self::listen(Some((SignalKind::hangup(), on_hangup)))
    }

    fn listen(hook: Option<(SignalKind, impl FnMut() + Send + 'static)>) -> io::Result<Self> {
        let shutdown = Self::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        // The handlers are installed before this returns, so no later signal is missed.
        let (mut terminate, mut interrupt, mut hangup) = {
            let _entered = runtime.enter();
            let hangup = hook.map(|(kind, hook)| signal(kind).map(|signal| (signal, hook))).transpose()?;
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, hangup)
        };
        let triggered = shutdown.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    let kind = tokio::select! {
                        _ = terminate.recv() => SignalKind::terminate(),
                        _ = interrupt.recv() => SignalKind::interrupt(),
                        () = hung_up(&mut hangup) => continue,
                    };
                    if kind == SignalKind::terminate() && triggered.is_followed() {
                        tracing::info!("another process serves: this one drains on");
                        triggered.note(TERMINATED);
                        continue;
                    }
                    if triggered.is_triggered() {
                        std::process::exit(128 + kind.as_raw_value());
                    }
                    tracing::info!(signal = kind.as_raw_value(), "stopping");
                    triggered.trigger();
                }
            });
        })?;
        Ok(shutdown)
    }

    /// Starts the shutdown. Further calls change nothing.
    pub fn trigger(&self) {
        self.take_hooks().into_iter().for_each(|hook| hook());
        self.token.cancel();
    }

    /// Calls `hook` before anything stops, unless the reason is that another process serves.
    pub(crate) fn on_stop(&self, hook: impl FnOnce() + Send + 'static) {
        self.at_first.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(hook));
    }

    fn take_hooks(&self) -> Vec<Hook> {
        std::mem::take(&mut *self.at_first.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the shutdown because another process serves.
    pub(crate) fn follow(&self) {
        self.note(FOLLOWED);
        tracing::info!("another process has taken over");
        drop(self.take_hooks());
        self.trigger();
    }

    /// Records that the other process has died.
    pub(crate) fn is_followed_by_nobody(&self) {
        self.note(DIED);
    }

    fn is_followed(&self) -> bool {
        self.next.load(SeqCst) & FOLLOWED != 0
    }

    /// Records what happened to the other process. Ends this process if it delays a restart of the unit: SIGTERM has
    /// come, and the other process has died. The two events may come in any order.
    fn note(&self, what: u8) {
        let all = self.next.fetch_or(what, SeqCst) | what;
        if all == FOLLOWED | TERMINATED | DIED {
            tracing::warn!("the process that served has died: this one ends, so that another is started");
            std::process::exit(TERMINATED_CODE);
        }
    }

    /// Starts the shutdown because something ended that should not have. The caller logs what it was.
    pub fn fail(&self) {
        self.failed.store(true, Relaxed);
        // The hooks announce a proper end, which this is not: another process is to start soon.
        drop(self.take_hooks());
        self.trigger();
    }

    /// The reason for the end, for the exit code. Ask once everything has ended.
    ///
    /// # Errors
    /// When anybody called [`fail`](Self::fail).
    pub fn outcome(&self) -> io::Result<()> {
        match self.failed.load(Relaxed) {
            true => Err(io::Error::other("a worker ended by itself, as the log says")),
            false => Ok(()),
        }
    }

    /// Whether the shutdown has started.
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns once the shutdown starts. Can be dropped at any time, and runs on any runtime.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }
}

/// Calls the hook at the next SIGHUP. Waits forever if there is no hook.
async fn hung_up(hangup: &mut Option<(Signal, impl FnMut())>) {
    match hangup {
        Some((signal, hook)) => {
            signal.recv().await;
            hook();
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_any_clone_triggers() {
        let shutdown = Shutdown::new();
        let clone = shutdown.clone();
        let waiter = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
            runtime.block_on(clone.wait());
        });
        assert!(!shutdown.is_triggered());
        shutdown.trigger();
        shutdown.trigger();
        waiter.join().expect("waiter");
        assert!(shutdown.is_triggered() && shutdown.outcome().is_ok());
        shutdown.clone().fail();
        assert!(shutdown.outcome().is_err());
    }

    #[test]
    fn an_end_in_good_order_is_told_of_and_no_other() {
        type End = fn(&Shutdown);
        let ends: [(End, bool); 3] =
            [(Shutdown::trigger, true), (Shutdown::follow, false), (Shutdown::fail, false)];
        for (index, (end, is_told)) in ends.into_iter().enumerate() {
            let (shutdown, told) = (Shutdown::new(), Arc::new(AtomicBool::new(false)));
            let tell = Arc::clone(&told);
            shutdown.on_stop(move || tell.store(true, SeqCst));
            end(&shutdown);
            assert!(shutdown.is_triggered());
            assert_eq!(told.load(SeqCst), is_told, "number {index}");
        }
    }
}
