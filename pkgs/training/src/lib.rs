//! What profile-guided builds learn from: the services, started as users start them, and the requests that they have to
//! answer cheapest, each for the same time.
//!
//! The compiler optimises what never ran for size. So what visitors request often belongs here, on SQLite and on
//! PostgreSQL; how often it runs matters little. README.md says what is missing.
//!
//! - [`programs`]: the instrumented programs.
//! - [`service`]: a running one, and its loads.
//! - [`links`], [`api`], [`files`]: what each is asked.
#![forbid(unsafe_code)]

mod api;
mod files;
mod links;
mod programs;
mod service;

use std::panic::resume_unwind;
use std::thread;

use bench::{Error, setup};

pub use programs::Programs;

/// Trains one service on one kind of database.
type Lesson = fn(&Programs) -> Result<(), Error>;

/// What is trained, beside one another.
const LESSONS: [Lesson; 5] =
    [links::on_sqlite, links::on_postgres, api::on_sqlite, api::on_postgres, files::train];

/// Trains all services, and returns once their profiles are written.
///
/// # Errors
/// When something is missing, or a request fails.
pub fn train(programs: &Programs) -> Result<(), Error> {
    setup::require("wrk", "wrk")?;
    setup::require("h2load", "nghttp2-client")?;
    thread::scope(|scope| {
        let lessons = LESSONS.map(|lesson| scope.spawn(move || lesson(programs)));
        let ended = lessons.map(|lesson| lesson.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.into_iter().collect()
    })
}
