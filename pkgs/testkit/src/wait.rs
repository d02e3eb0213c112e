//! Waits for something that another process does without announcing it.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a machine that is busy with other tests. Only a process that hangs takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until a condition holds.
///
/// # Panics
/// When it still doesn't hold after two minutes. The message contains `what`.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits for a value, and returns it.
///
/// # Panics
/// When there is still no value after two minutes. The message contains `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(there) = there() {
            return there;
        }
        assert!(Instant::now() < deadline, "not yet: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until an asynchronous condition holds, on a tokio runtime.
///
/// # Panics
/// When it still doesn't hold after two minutes. The message contains `what`.
#[cfg(feature = "runtime")]
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not yet: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_waited_for_and_no_longer() {
        let mut looks = 0;
        let third = wait_for("the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!((third, looks), (3, 3));
        until("what is so", || true);
    }

    #[cfg(feature = "runtime")]
    #[test]
    fn what_is_awaited_is_waited_for_and_no_longer() {
        let mut looks = 0;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a clock");
        runtime.block_on(eventually("the third look", async || {
            looks += 1;
            looks == 3
        }));
        assert_eq!(looks, 3);
    }
}
