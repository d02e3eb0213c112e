//! Stage 3: the pool is awaited.
//!
//! The article: 2,800 to 7,800 requests/s. The pool is the same as before, with sqlx's default size and checks (ten
//! connections, each pinged before it is lent).

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path};
use axum::response::Response;
use axum::routing::{get, post};
use sqlx::PgPool;
use tokio::runtime::Runtime;

use super::answer::Problem;
use super::database::READ;
use super::s2_sonic::{create, found};
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "async pool",
    claimed_qps: 7_800,
    change: "A request that waits for PostgreSQL leaves its worker to others, so ten connections work instead of \
             one a worker, and no thread is put to sleep and woken for each query.",
    serve,
};

async fn read(
    Extension(pool): Extension<PgPool>,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id?;
    let row = sqlx::query_as(READ).bind(id).fetch_optional(&pool).await?;
    found(&row.ok_or(Problem::NOT_FOUND)?)
}

fn serve(options: &Options) -> Result<(), Error> {
    Runtime::new().map_err(Error::Threads)?.block_on(async {
        let pool = PgPool::connect(&options.database).await?;
        let router = Router::new()
            .route("/users", post(create))
            .route("/users/{id}", get(read))
            .layer(Extension(pool));
        super::serve(options.listen, router).await
    })
}
