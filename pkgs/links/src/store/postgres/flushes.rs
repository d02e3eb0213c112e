//! The clicks that this node has counted. Each flush has a number, so one that is sent again counts once.

use std::sync::Arc;
use std::time::Duration;

use postgres::Pool;
use tokio::sync::Mutex;

use crate::store::{ClickBatch, Error};

use super::{MANY, clicks, within};

/// This node's flushes. Clones share them.
#[derive(Clone)]
pub struct Flushes {
    progress: Arc<Mutex<Progress>>,
    timeout: Duration,
}

/// How far this node's clicks have come.
struct Progress {
    node: i64,
    /// The number of the last flush that is known to have arrived.
    seq: i64,
    /// Clicks that were taken and may not have arrived. They are sent before anything else, each piece with its old
    /// number.
    unsettled: Option<Unsettled>,
}

/// Clicks that were partly sent.
struct Unsettled {
    batch: Arc<ClickBatch>,
    /// How many of its clicks, and of those by country, have arrived.
    arrived: [usize; 2],
}

impl Flushes {
    /// The flushes of a new node. A piece of them has to arrive within `timeout`.
    pub fn new(timeout: Duration) -> Self {
        let mut node = [0; 8];
        getrandom::fill(&mut node).expect("the system has a source of randomness");
        let progress = Progress { node: i64::from_le_bytes(node), seq: 0, unsettled: None };
        Self { progress: Arc::new(Mutex::new(progress)), timeout }
    }

    /// Takes clicks once all earlier ones have arrived, and sends them.
    ///
    /// Cancelling it after it has taken the clicks could count them twice. So only the steps before that have a
    /// timeout.
    pub async fn send(&self, pool: &Pool, batch: Arc<ClickBatch>) -> Result<(), Error> {
        let taken = async {
            let mut progress = self.progress.lock().await;
            progress.settle(pool, self.timeout).await?;
            Ok::<_, Error>(progress)
        };
        let mut progress = within(MANY, taken).await?;
        // From here on the store owns the batch. If the outcome is unknown, the batch is sent again with the same
        // number.
        progress.unsettled = Some(Unsettled { batch, arrived: [0; 2] });
        if let Err(error) = within(self.timeout, progress.settle(pool, self.timeout)).await {
            tracing::warn!(%error, "clicks wait to be sent again");
        }
        Ok(())
    }

    /// Sends clicks that may not have arrived. It can be cancelled at any time.
    pub async fn settle(&self, pool: &Pool) -> Result<(), Error> {
        self.progress.lock().await.settle(pool, self.timeout).await
    }
}

impl Progress {
    /// Sends clicks that may not have arrived, piece by piece. It can be cancelled at any time.
    async fn settle(&mut self, pool: &Pool, timeout: Duration) -> Result<(), Error> {
        while let Some(Unsettled { batch, arrived }) = &mut self.unsettled {
            let piece = batch.clicks[arrived[0]..].chunks(clicks::ENTRIES).next().unwrap_or_default();
            let countries = batch.countries[arrived[1]..].chunks(clicks::ENTRIES).next().unwrap_or_default();
            if piece.is_empty() && countries.is_empty() {
                self.unsettled = None;
                break;
            }
            let sent = clicks::flush(pool, self.node, self.seq + 1, &batch.referrers, piece, countries);
            within(timeout, sent).await?;
            self.seq += 1;
            *arrived = [arrived[0] + piece.len(), arrived[1] + countries.len()];
        }
        Ok(())
    }
}
