//! The threads that look up the content of archives, and the limit of archives at once.

use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;
use service::panics;

use super::permit::{ARCHIVES, Permits};
use super::plan::{ArchivePlan, ArchiveRequest, PlanError};
use crate::site::Site;
use crate::site::root::Error;
use crate::threads::health::ThreadHealth;
use crate::threads::pool::ThreadPool;

/// Threads that search directories. A tree of 10,000 files in memory takes one about 100 ms.
const THREADS: usize = 2;

/// The threads, which start with the first archive.
pub struct ArchivePlanner {
    pool: ThreadPool,
    permits: Permits,
}

impl fmt::Debug for ArchivePlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchivePlanner").finish_non_exhaustive()
    }
}

impl Default for ArchivePlanner {
    fn default() -> Self {
        Self { pool: ThreadPool::new("files-archive", THREADS, ARCHIVES), permits: Permits::default() }
    }
}

impl ArchivePlanner {
    /// Looks up the content of an archive. Calls `done` on the thread that did so, or at once.
    pub fn plan(
        &self,
        site: Arc<Site>,
        request: ArchiveRequest,
        done: impl FnOnce(Result<ArchivePlan, PlanError>) + Send + 'static,
    ) {
        let Some(permit) = self.permits.take() else { return done(Err(PlanError::Busy)) };
        // The queue has as many places as there are permits.
        let _ = self.pool.run(move || {
            let path = request.path.clone();
            let plan = panics::catch(|| ArchivePlan::make(&site, request, permit));
            done(plan.unwrap_or_else(|panic| {
                panic.log("archive", &String::from_utf8_lossy(&path));
                Err(PlanError::Failed(Error::Failed(Errno::IO)))
            }));
        });
    }

    /// Since when each thread has been running its job.
    pub fn health(&self) -> &ThreadHealth {
        self.pool.health()
    }
}
