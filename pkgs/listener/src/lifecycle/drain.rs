//! The phases of shutdown.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A phase of shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not stopping.
    Serving,
    /// Nothing new starts: no connection is accepted, and every answer is its connection's last. Running requests may
    /// continue until this time.
    Draining(Instant),
    /// Everything left is cut.
    Cut,
}

/// The sender of phases.
#[derive(Debug)]
pub struct Control(watch::Sender<Phase>);

/// The receiver of phases. Clones receive the same.
#[derive(Clone, Debug)]
pub struct Drain(watch::Receiver<Phase>);

/// A sender and a receiver, in [`Phase::Serving`].
pub fn pair() -> (Control, Drain) {
    let (sender, receiver) = watch::channel(Phase::Serving);
    (Control(sender), Drain(receiver))
}

impl Control {
    /// Gives running requests `time` from now.
    pub fn drain(&self, time: Duration) {
        self.0.send_replace(Phase::Draining(Instant::now() + time));
    }

    /// Cuts everything.
    pub fn cut(&self) {
        self.0.send_replace(Phase::Cut);
    }
}

impl Drain {
    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns the deadline once draining starts; it is now if everything is cut already. Can be dropped at any time.
    pub async fn draining(&mut self) -> Instant {
        match self.0.wait_for(|phase| *phase != Phase::Serving).await.as_deref() {
            Ok(Phase::Draining(deadline)) => *deadline,
            _ => Instant::now(),
        }
    }

    /// Returns once everything is cut. Can be dropped at any time.
    pub async fn cut(&mut self) {
        // Without a sender, nothing waits either.
        let _ = self.0.wait_for(|phase| *phase == Phase::Cut).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_follow_each_other() {
        let (control, mut drain) = pair();
        assert_eq!(drain.phase(), Phase::Serving);
        let before = Instant::now();
        control.drain(Duration::from_secs(5));
        let deadline = drain.draining().await;
        assert!(deadline >= before + Duration::from_secs(5));
        assert_eq!(drain.phase(), Phase::Draining(deadline));
        control.cut();
        drain.cut().await;
        assert_eq!(drain.phase(), Phase::Cut);
    }

    #[tokio::test]
    async fn a_control_that_is_gone_cuts() {
        let (control, mut drain) = pair();
        drop(control);
        drain.draining().await;
        drain.cut().await;
    }
}
