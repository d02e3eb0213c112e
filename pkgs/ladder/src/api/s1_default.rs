//! Stage 1: axum as in its documentation, and a database call that blocks.
//!
//! The article starts here with 620 requests/s: default handlers, serde_json, "sqlx blocking". Its flame graph has 28 %
//! in `serde_json::from_slice`, 22 % in tokio's polling, and small allocations all over.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Extension, Path};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::runtime::Runtime;

use super::answer::Problem;
use super::database::{Blocking, READ};
use super::user::{Accepted, Found, Row, User};
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "default",
    claimed_qps: 620,
    change: "Where it starts: serde_json, copies, and a worker that waits for PostgreSQL and serves nobody \
             meanwhile.",
    serve,
};

async fn create(user: Result<Json<User>, JsonRejection>) -> Result<Response, Problem> {
    let Json(user) = user?;
    Ok(Json(Accepted::of(&user)).into_response())
}

async fn read(
    Extension(database): Extension<Arc<Blocking>>,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id?;
    let query = sqlx::query_as(READ).bind(id).fetch_optional(database.pool());
    let row: Row = database.wait(query)?.ok_or(Problem::NOT_FOUND)?;
    let user: User = serde_json::from_str(&row.4)?;
    Ok(Json(Found::of(&row, &user)).into_response())
}

fn serve(options: &Options) -> Result<(), Error> {
    let database = Arc::new(Blocking::connect(&options.database)?);
    let router = Router::new()
        .route("/users", post(create))
        .route("/users/{id}", get(read))
        .layer(Extension(Arc::clone(&database)));
    Runtime::new().map_err(Error::Threads)?.block_on(super::serve(options.listen, router))
}
