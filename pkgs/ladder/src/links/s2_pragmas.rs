//! Stage 2: SQLite's settings.
//!
//! The article: 10,000 to 20,000 requests/s.

use r2d2_sqlite::SqliteConnectionManager;

use super::s1_naive::serve_with;
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "PRAGMAs",
    claimed_qps: 20_000,
    change: "WAL takes its lock in shared memory instead of by system calls on the file, and pages are read from a \
             map; what is about writing does nothing for reads.",
    serve,
};

/// The article's settings, which each connection runs first.
const PRAGMAS: &str = "
    PRAGMA busy_timeout = 5000;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA cache_size = -64000;
    PRAGMA temp_store = memory;
    PRAGMA mmap_size = 536870912;
    PRAGMA wal_autocheckpoint = 1000;
    PRAGMA optimize;
";

pub(super) fn manager(path: &str) -> SqliteConnectionManager {
    // The connections are opened at the same time, and the first one that switches to WAL locks out the others. So
    // `busy_timeout` comes first. Its position is the only difference from the article.
    SqliteConnectionManager::file(path).with_init(|connection| connection.execute_batch(PRAGMAS))
}

fn serve(options: &Options) -> Result<(), Error> {
    serve_with(options, manager(&options.database))
}
