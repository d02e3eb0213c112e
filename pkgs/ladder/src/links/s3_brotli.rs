//! Stage 3: Brotli.
//!
//! The article: 20,000 to 30,000 requests/s, by compressing answers. The client accepts Brotli in every stage; a
//! redirect has no body to compress.

use actix_web::middleware::Compress;
use actix_web::{App, HttpServer, rt, web};

use super::database;
use super::s1_naive::redirect;
use super::s2_pragmas::manager;
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "Brotli",
    claimed_qps: 30_000,
    change: "A redirect has no body, so there is nothing to compress; the middleware reads Accept-Encoding and wraps \
             the answer all the same.",
    serve,
};

fn serve(options: &Options) -> Result<(), Error> {
    let pool = web::Data::new(database::open(&options.database, manager(&options.database))?);
    let app = move || {
        App::new().wrap(Compress::default()).app_data(pool.clone()).route("/{code}", web::get().to(redirect))
    };
    let server = HttpServer::new(app).bind(options.listen).map_err(Error::serve(options.listen))?;
    rt::System::new().block_on(server.run()).map_err(Error::serve(options.listen))
}
