//! Panics: each is logged and counted, and ends one connection or job instead of the process.
//!
//! Releases unwind. A service first calls [`install`], and [`register`] for its metrics. Code that serves requests
//! wraps each in [`catch`] or [`Catch`], and closes the connection after a panic, since part of the answer may have
//! been sent. The request's line is computed only then, so it costs other requests nothing.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::pin::Pin;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::thread;

use crate::exit::one_line;
use crate::metrics::{Family, Registry};

/// Panics of this process since [`install`].
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The place of this thread's last panic, for the code that catches it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From here on, every panic, caught or not, is counted and logged as one line with its message, place and thread. With
/// `RUST_BACKTRACE` set, the line has its backtrace. If nothing is logged, it is printed as Rust does.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let printed = take_hook();
        set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, Relaxed);
            let place = info.location().map(ToString::to_string);
            // The thread may be ending, with its locals gone.
            let _ = PLACE.try_with(|last| last.try_borrow_mut().map(|mut last| last.clone_from(&place)));
            if tracing::enabled!(tracing::Level::ERROR) {
                log(info, place.as_deref().unwrap_or("?"));
            } else {
                printed(info);
            }
        }));
    });
}

fn log(info: &PanicHookInfo<'_>, place: &str) {
    let message = one_line(message(info.payload()));
    let thread = thread::current();
    let thread = thread.name().unwrap_or("?");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(panic = %message, at = %place, thread = %thread, %backtrace, "panicked");
    } else {
        tracing::error!(panic = %message, at = %place, thread = %thread, "panicked");
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    match payload.downcast_ref::<&'static str>() {
        Some(text) => text,
        None => payload.downcast_ref::<String>().map_or("", String::as_str),
    }
}

/// The number of panics since [`install`].
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}

/// Registers [`count`] as `NAME_total`; `name` is `linerate_<service>_panics`.
pub fn register(registry: &mut Registry, name: &'static str) {
    Family::new(name, "Panics, each of which ended a connection or a job")
        .with(&[], count)
        .register(registry);
}

/// A caught panic.
#[derive(Debug, thiserror::Error)]
#[error("panicked at {place}: {message}")]
pub struct Panic {
    /// Its message.
    pub message: String,
    /// The source file, line and column, or `?` without [`install`].
    pub place: String,
}

impl Panic {
    /// Reads the payload from `catch_unwind` or from a thread's `join`, on the thread that panicked or another.
    pub fn new(payload: Box<dyn Any + Send>) -> Self {
        let place = PLACE.with(|last| last.borrow_mut().take());
        Self { message: one_line(message(&*payload)), place: place.unwrap_or_else(|| "?".into()) }
    }

    /// Logs that the panic ended `what`, such as `connection`, at `request`: the request's line, or the job's name.
    pub fn log(&self, what: &str, request: &(impl fmt::Display + ?Sized)) {
        let (panic, at) = (&self.message, &self.place);
        tracing::error!(%panic, %at, %request, "a panic ended this {what}");
    }
}

/// Runs `work`. A panic becomes an error.
///
/// Anything that it shares with others stays in whatever state the panic left it. Close what belongs to it alone.
///
/// # Errors
/// The panic. [`install`] has already logged and counted it, but without its request: see [`Panic::log`].
#[inline]
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(Panic::new)
}

/// A future whose panics become errors. It must not be polled after one.
#[derive(Debug)]
pub struct Catch<F>(F);

impl<F> Catch<F> {
    /// Wraps `future`; see [`catch`].
    pub const fn new(future: F) -> Self {
        Self(future)
    }
}

impl<F: Future + Unpin> Future for Catch<F> {
    type Output = Result<F::Output, Panic>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch(|| Pin::new(&mut self.0).poll(context)) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::metrics::encode;

    #[test]
    fn a_panic_is_caught_counted_and_placed() {
        install();
        install();
        let before = count();
        assert_eq!(catch(|| 7).expect("no panic"), 7);
        let number = 7;
        let panic = catch(|| -> () { panic!("seven is\n{number}") }).expect_err("a panic");
        assert_eq!(panic.message, "seven is 7");
        assert!(panic.place.contains("panics.rs:"), "{}", panic.place);
        // Other tests panic meanwhile.
        assert!(count() > before);
        let mut registry = Registry::default();
        register(&mut registry, "linerate_test_panics");
        let text = encode(&registry);
        assert!(text.contains("linerate_test_panics_total "), "{text}");
    }

    #[tokio::test]
    async fn a_future_that_panics_gives_its_panic() {
        let future = pin!(async {
            tokio::task::yield_now().await;
            panic!("late");
        });
        let panic: Panic = Catch::new(future).await.expect_err("a panic");
        assert_eq!(panic.message, "late");
        assert!(Catch::new(pin!(async { 1 })).await.is_ok());
    }
}
