//! Makes the store merge old days and delete old hours of clicks.

use std::convert::Infallible;
use std::num::NonZero;
use std::time::Duration;

use crate::store::{Error, FoldCursor, Store};
use crate::when::{HOURS, Timestamp};

/// Pause between two pieces of work, so that visits and edits are written in between.
const PAUSE: Duration = Duration::from_millis(250);

/// How often to check whether a new day has started.
const LOOK: Duration = Duration::from_secs(60);

/// How long to wait after an error. A database server may go on for two minutes with a part that this node has given
/// up. Until then it takes this node for another one, which does the rest.
const AGAIN: Duration = Duration::from_secs(180);

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
            let mut progress = Progress::default();
            while let Err(error) = tidy(&store, today, retention, &mut progress).await {
                match error {
                    // A read-only database never changes.
                    Error::ReadOnly => return std::future::pending().await,
                    error => tracing::warn!(%error, "old clicks are still told apart"),
                }
                tokio::time::sleep(AGAIN).await;
            }
            done = Some(today);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Where a day's two jobs continue; `None` once one is done.
struct Progress {
    hours: Option<FoldCursor>,
    days: Option<FoldCursor>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { hours: Some(FoldCursor::default()), days: Some(FoldCursor::default()) }
    }
}

async fn tidy(store: &Store, today: i32, retention: Retention, progress: &mut Progress) -> Result<(), Error> {
    let before = |days: NonZero<u32>| today.saturating_sub(i32::try_from(days.get()).unwrap_or(i32::MAX));
    let hours = before(retention.hours).saturating_mul(HOURS);
    let forgotten = all(&mut progress.hours, |from| store.forget_hours(hours, from)).await;
    // If one of the two fails, the other is still done.
    if let Some(days) = retention.days {
        all(&mut progress.days, |from| store.fold_days(before(days), from)).await?;
    }
    forgotten
}

/// Does the rest of a job, part by part. After an error, `next` is the part that failed.
async fn all<T: Copy, F>(next: &mut Option<T>, part: impl Fn(T) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    while let Some(from) = *next {
        *next = part(from).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn a_job_continues_with_the_part_that_failed() {
        let asked = RefCell::new(Vec::new());
        let part = |from: u32| {
            let is_again = asked.borrow().contains(&from);
            asked.borrow_mut().push(from);
            std::future::ready(match from {
                2 if !is_again => Err(Error::Busy),
                from => Ok(Some(from + 1).filter(|next| *next < 4)),
            })
        };
        let mut next = Some(1);
        assert!(matches!(all(&mut next, part).await, Err(Error::Busy)));
        assert_eq!(next, Some(2));
        all(&mut next, part).await.expect("it fails once");
        assert_eq!((next, asked.into_inner()), (None, vec![1, 2, 2, 3]));
    }
}
