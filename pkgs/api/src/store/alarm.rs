//! Tells when something has ended that a database cannot be used without.

use tokio::sync::watch;

/// Tells when something has ended that a database cannot be used without; clones share it.
#[derive(Clone, Debug)]
pub struct Alarm(watch::Sender<bool>);

impl Default for Alarm {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Alarm {
    /// Raised for good.
    pub fn raise(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was.
    pub fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is. Works on any runtime.
    pub async fn raised(&self) {
        let mut receiver = self.0.subscribe();
        // The sender is here, so this ends only by being raised.
        let _ = receiver.wait_for(|raised| *raised).await;
    }

    /// Raised when dropped, as what ends by a panic drops it, unless it is disarmed.
    pub fn arm(&self) -> Armed {
        Armed(Some(self.clone()))
    }
}

/// What [`Alarm::arm`] makes.
#[derive(Debug)]
pub struct Armed(Option<Alarm>);

impl Armed {
    /// All has ended as it should.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(alarm) = self.0.take() {
            alarm.raise();
        }
    }
}
