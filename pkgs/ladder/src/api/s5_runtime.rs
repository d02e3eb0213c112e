//! Stage 5: the runtime is configured.
//!
//! The article: 14,000 to 21,000 requests/s, with a worker for each CPU and 512 threads for blocking work. Both are
//! tokio's defaults (docs.rs/tokio, `runtime::Builder`), so the same program runs as before.

use std::num::NonZero;
use std::thread;

use sqlx::PgPool;
use tokio::runtime::{Builder, Runtime};

use super::s4_allocations::router;
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "runtime",
    claimed_qps: 21_000,
    change: "A worker for each CPU and 512 blocking threads are what tokio starts with anyway: nothing changes.",
    serve,
};

pub(super) fn runtime() -> Result<Runtime, Error> {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(cpus)
        .max_blocking_threads(512)
        .enable_all()
        .build()
        .map_err(Error::Threads)
}

fn serve(options: &Options) -> Result<(), Error> {
    runtime()?.block_on(async {
        let pool = PgPool::connect(&options.database).await?;
        super::serve(options.listen, router(pool)).await
    })
}
