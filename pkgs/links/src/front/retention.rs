//! Has the store keep days and hours of clicks for as long as they are to be kept, and no longer.

use std::convert::Infallible;
use std::num::NonZero;
use std::time::Duration;

use crate::store::{Error, FoldCursor, Pending, Store};
use crate::when::{HOURS, Timestamp};

/// Between two pieces of work, so that visits and edits are written in between.
const PAUSE: Duration = Duration::from_millis(250);

/// How often it is looked whether another day has begun, or what failed may be done now.
const LOOK: Duration = Duration::from_secs(60);

/// For how many days before today clicks are told apart.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// By day; for ever where absent. Older days are folded into one.
    pub days: Option<NonZero<u32>>,
    /// By hour. Older hours are forgotten.
    pub hours: NonZero<u32>,
}

/// Folds and forgets what is older, once a day. Where it is ended half way, the next one does the rest.
pub async fn keep(store: Store, retention: Retention) -> Infallible {
    let mut done = None;
    loop {
        let today = Timestamp::now().day();
        if done != Some(today) {
            match tidy(&store, today, retention).await {
                Ok(()) => done = Some(today),
                // It is never written to.
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
    // Neither keeps the other from being done.
    if let Some(days) = retention.days {
        all(|from| store.fold_days(before(days), from)).await?;
    }
    forgotten
}

/// Does all of something, part by part.
async fn all(part: impl Fn(FoldCursor) -> Pending<Option<FoldCursor>>) -> Result<(), Error> {
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = part(from).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
