//! Stage 4: a cache.
//!
//! The article: 30,000 to 232,000 requests/s, with moka in front of the database.

use actix_web::middleware::Compress;
use actix_web::{App, HttpResponse, HttpServer, rt, web};
use moka::sync::Cache;

use super::database::{self, Pool, answer, target};
use super::s2_pragmas::manager;
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "moka",
    claimed_qps: 232_000,
    change: "A code that was asked for before is found in memory: no pool, no SQL, no SQLite.",
    serve,
};

/// How many targets are cached: all of them.
const CAPACITY: u64 = database::LINKS as u64;

/// From code to target.
type Targets = Cache<String, String>;

async fn redirect(
    pool: web::Data<Pool>,
    targets: web::Data<Targets>,
    code: web::Path<String>,
) -> HttpResponse {
    if let Some(cached) = targets.get(code.as_str()) {
        return answer(Some(Some(cached)));
    }
    let found = target(&pool, &code);
    if let Some(Some(target)) = &found {
        targets.insert(code.into_inner(), target.clone());
    }
    answer(found)
}

fn serve(options: &Options) -> Result<(), Error> {
    let pool = web::Data::new(database::open(&options.database, manager(&options.database))?);
    let targets = web::Data::new(Targets::new(CAPACITY));
    let app = move || {
        App::new()
            .wrap(Compress::default())
            .app_data(pool.clone())
            .app_data(targets.clone())
            .route("/{code}", web::get().to(redirect))
    };
    let server = HttpServer::new(app).bind(options.listen).map_err(Error::serve(options.listen))?;
    rt::System::new().block_on(server.run()).map_err(Error::serve(options.listen))
}
