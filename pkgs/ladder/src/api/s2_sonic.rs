//! Stage 2: sonic-rs instead of serde_json, for both parsing and serialising.
//!
//! The article: 620 to 2,800 requests/s. axum's `Json` is serde_json's, so the body is extracted as a string and parsed
//! in the handler.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::{PathRejection, StringRejection};
use axum::extract::{Extension, Path};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::runtime::Runtime;

use super::answer::{IsJson, Problem, json};
use super::database::{Blocking, READ};
use super::user::{Accepted, Found, Row, User};
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "sonic-rs",
    claimed_qps: 2_800,
    change: "JSON is scanned in blocks, and a body no longer through serde_path_to_error, which axum's Json puts \
             around serde_json. Without target-cpu=native, which comes last, the blocks are SSE2's.",
    serve,
};

pub(super) async fn create(_: IsJson, body: Result<String, StringRejection>) -> Result<Response, Problem> {
    let user: User = sonic_rs::from_str(&body?).map_err(|_| Problem::BAD_REQUEST)?;
    Ok(json(sonic_rs::to_string(&Accepted::of(&user))?))
}

async fn read(
    Extension(database): Extension<Arc<Blocking>>,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id?;
    let query = sqlx::query_as(READ).bind(id).fetch_optional(database.pool());
    found(&database.wait(query)?.ok_or(Problem::NOT_FOUND)?)
}

pub(super) fn found(row: &Row) -> Result<Response, Problem> {
    let user: User = sonic_rs::from_str(&row.4)?;
    Ok(json(sonic_rs::to_string(&Found::of(row, &user))?))
}

fn serve(options: &Options) -> Result<(), Error> {
    let database = Arc::new(Blocking::connect(&options.database)?);
    let router = Router::new()
        .route("/users", post(create))
        .route("/users/{id}", get(read))
        .layer(Extension(Arc::clone(&database)));
    Runtime::new().map_err(Error::Threads)?.block_on(super::serve(options.listen, router))
}
