//! Has the store keep days of clicks for as long as they are to be kept, and no longer.

use std::convert::Infallible;
use std::num::NonZero;
use std::time::Duration;

use crate::store::{Error, FoldCursor, Store};
use crate::when::Timestamp;

/// Between two pieces of work, so that visits and edits are written in between.
const PAUSE: Duration = Duration::from_millis(250);

/// How often it is looked whether another day has begun, or what failed may be done now.
const LOOK: Duration = Duration::from_secs(60);

/// Folds what is older than `days` before today, once a day; never where there is no such number. Where it is ended half
/// way, the next one does the rest.
pub async fn keep(store: Store, days: Option<NonZero<u32>>) -> Infallible {
    let Some(days) = days else { return std::future::pending().await };
    let days = i32::try_from(days.get()).unwrap_or(i32::MAX);
    let mut done = None;
    loop {
        let today = Timestamp::now().day();
        if done != Some(today) {
            match fold(&store, today.saturating_sub(days)).await {
                Ok(()) => done = Some(today),
                // It is never written to.
                Err(Error::ReadOnly) => return std::future::pending().await,
                Err(error) => tracing::warn!(%error, "old days of clicks are not folded yet"),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn fold(store: &Store, before: i32) -> Result<(), Error> {
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = store.fold_days(before, from).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
