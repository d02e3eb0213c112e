//! Stage 1: actix-web and SQLite, as a beginner would write it.
//!
//! The article starts here with 10,000 requests/s: an r2d2 pool, and a query in the handler. It says that WAL was
//! already on and lists it again among the settings of the next step; here it comes with those, to give that step its
//! full effect.

use actix_web::{App, HttpResponse, HttpServer, rt, web};
use r2d2_sqlite::SqliteConnectionManager;

use super::database::{self, Pool, answer, target};
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "naive",
    claimed_qps: 10_000,
    change: "Where it starts: a connection is lent and tested, a statement compiled, the file locked and read, for \
             every redirect.",
    serve,
};

pub(super) async fn redirect(pool: web::Data<Pool>, code: web::Path<String>) -> HttpResponse {
    answer(target(&pool, &code))
}

/// Serves with connections that `manager` opens.
pub(super) fn serve_with(options: &Options, manager: SqliteConnectionManager) -> Result<(), Error> {
    let pool = web::Data::new(database::open(&options.database, manager)?);
    let app = move || App::new().app_data(pool.clone()).route("/{code}", web::get().to(redirect));
    let server = HttpServer::new(app).bind(options.listen).map_err(Error::serve(options.listen))?;
    rt::System::new().block_on(server.run()).map_err(Error::serve(options.listen))
}

fn serve(options: &Options) -> Result<(), Error> {
    serve_with(options, SqliteConnectionManager::file(&options.database))
}
