//! Makes the store merge old days and delete old hours of clicks.

use std::convert::Infallible;
use std::num::NonZero;
use std::time::Duration;

use crate::store::{Error, FoldCursor, Pending, Store};
use crate::when::{HOURS, Timestamp};

/// Pause between two pieces of work, so that visits and edits are written in between.
const PAUSE: Duration = Duration::from_millis(250);

/// How often to check whether a new day has started, and to retry after an error.
const LOOK: Duration = Duration::from_secs(60);

/// How many days before today keep their details.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// By day; forever if absent. Older days are merged into one.
    pub days: Option<NonZero<u32>>,
    /// By hour. Older hours are deleted.
    pub hours: NonZero<u32>,
}

/// Merges and deletes older clicks once a day. If it is interrupted, the next run does the rest.
pub async fn keep(store: Store, retention: Retention) -> Infallible {
    let mut done = None;
    loop {
        let today = Timestamp::now().day();
        if done != Some(today) {
            match tidy(&store, today, retention).await {
                Ok(()) => done = Some(today),
                // A read-only database never changes.
                Err(Error::ReadOnly) => return std::future::pending().await,
                Err(error) => tracing::warn!(%error, "old clicks are still told apart"),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn tidy(store: &Store, today: i32, retention: Retention) -> Result<(), Error> {
    let before = |days: NonZero<u32>| today.saturating_sub(i32::try_from(days.get()).unwrap_or(i32::MAX));
    let hours = before(retention.hours).saturating_mul(HOURS);
    let forgotten = all(|from| store.forget_hours(hours, from)).await;
    // If one of the two fails, the other is still done.
    if let Some(days) = retention.days {
        all(|from| store.fold_days(before(days), from)).await?;
    }
    forgotten
}

/// Does all of a job, part by part.
async fn all(part: impl Fn(FoldCursor) -> Pending<Option<FoldCursor>>) -> Result<(), Error> {
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = part(from).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
