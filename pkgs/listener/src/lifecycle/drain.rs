//! Stopping in steps.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How far stopping has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not at all.
    Serving,
    /// Nothing new is begun: no connection is accepted, every answer is its connection's last. What is in
    /// flight may end until then.
    Draining(Instant),
    /// What is left is cut.
    Cut,
}

/// The end that decides.
#[derive(Debug)]
pub struct Control(watch::Sender<Phase>);

/// The end that follows; clones follow the same.
#[derive(Clone, Debug)]
pub struct Drain(watch::Receiver<Phase>);

/// Both ends, in [`Phase::Serving`].
pub fn pair() -> (Control, Drain) {
    let (sender, receiver) = watch::channel(Phase::Serving);
    (Control(sender), Drain(receiver))
}

impl Control {
    /// What is in flight has `time` from now on.
    pub fn drain(&self, time: Duration) {
        self.0.send_replace(Phase::Draining(Instant::now() + time));
    }

    /// No more waiting.
    pub fn cut(&self) {
        self.0.send_replace(Phase::Cut);
    }
}

impl Drain {
    /// How far it is now.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns the deadline once draining begins, which is now when everything is cut already. Safe to drop.
    pub async fn draining(&mut self) -> Instant {
        match self.0.wait_for(|phase| *phase != Phase::Serving).await.as_deref() {
            Ok(Phase::Draining(deadline)) => *deadline,
            _ => Instant::now(),
        }
    }

    /// Returns once everything is cut. Safe to drop.
    pub async fn cut(&mut self) {
        // Without a control nobody waits either.
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
