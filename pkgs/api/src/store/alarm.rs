//! Reports that something has ended without which a database cannot be used.

use tokio::sync::watch;

/// Reports that something essential for a database has ended. Clones share it.
#[derive(Clone, Debug)]
pub struct Alarm(watch::Sender<bool>);

impl Default for Alarm {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Alarm {
    /// Raises the alarm permanently.
    pub fn raise(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is raised.
    #[cfg(test)]
    pub fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is raised. Works on any runtime.
    pub async fn raised(&self) {
        let mut receiver = self.0.subscribe();
        // The sender exists, so this ends only when it is raised.
        let _ = receiver.wait_for(|raised| *raised).await;
    }

    /// Raises the alarm when the returned value is dropped, for instance by a panic, unless it is disarmed.
    pub fn arm(&self) -> Armed {
        Armed(Some(self.clone()))
    }
}

/// What [`Alarm::arm`] makes.
#[derive(Debug)]
pub struct Armed(Option<Alarm>);

impl Armed {
    /// Disarms it, since everything has ended properly.
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
