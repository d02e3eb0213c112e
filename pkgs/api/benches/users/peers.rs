//! What reads users and echoes them: the listener with this service's store, and what it is measured against. All
//! answer `GET /users/ID` with a user as it is stored, and `POST /echo` with the document that was sent.

use std::convert::Infallible;
use std::env;
use std::error::Error as Cause;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use actix_web::{App, HttpResponse, HttpServer, web};
use api::user::UserId;
use api::users::{DatabaseUrl, Options, Users};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bench::Error;
use bench::server::{Placement, Server, free_address};
use listener::{Config, Endpoint, Listener, Runtime};
use service::shutdown::Shutdown;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgPoolOptions};

/// The listener with this service's store.
pub const OURS: &str = "linerate-api";
/// axum::serve, a pool of sqlx that awaits a query on each connection, serde_json.
pub const AXUM: &str = "axum + sqlx";
/// actix-web with this service's store.
pub const ACTIX: &str = "actix-web";

/// The word that makes this executable serve: `serve NAME ADDRESS WORKERS DATABASE CACHE_BYTES`.
const SERVE: &str = "serve";

/// Connections of the pool that this is measured against, and of pgbench.
pub const POOL: u32 = 10;

type Outcome = Result<(), Box<dyn Cause + Send + Sync>>;

/// Serves where the command line says so. The bench calls this before anything else.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, name, address, workers, database, cache] = arguments.as_slice() else { return None };
    if word != SERVE {
        return None;
    }
    let (address, workers, cache) = (address.parse().ok()?, workers.parse().ok()?, cache.parse().ok()?);
    let options = || {
        let database: DatabaseUrl = database.parse()?;
        Ok::<_, api::users::InvalidDatabaseUrl>(Options {
            cache_bytes: cache,
            workers,
            ..Options::new(database)
        })
    };
    let served = match name.as_str() {
        OURS => options().map_err(Into::into).and_then(|options| ours(address, workers, &options)),
        AXUM => baseline(address, workers, database),
        ACTIX => options().map_err(Into::into).and_then(|options| actix(address, workers, &options)),
        _ => return None,
    };
    Some(match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}: {:?}", error.source());
            ExitCode::FAILURE
        }
    })
}

/// Starts one of them.
pub fn start(name: &'static str, placement: Placement, database: &str, cache: u64) -> Result<Server, Error> {
    let address = free_address()?;
    let this: PathBuf = env::current_exe()?;
    let mut command = placement.command(this);
    command.args([
        SERVE,
        name,
        &address.to_string(),
        &placement.workers.to_string(),
        database,
        &cache.to_string(),
    ]);
    Server::start(name, address, &mut command)
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn json(body: Bytes) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

fn ours(address: SocketAddr, workers: NonZero<usize>, options: &Options) -> Outcome {
    let opening = runtime()?;
    let users = opening.block_on(Users::open(options))?;
    let router = Router::new().route("/users/{id}", get(read)).route("/echo", post(echo)).with_state(users);
    let config = Config {
        endpoints: vec![Endpoint::plain(format!("{address}").parse()?)],
        runtime: Runtime::PerCore(Some(workers)),
        ..Config::default()
    };
    Listener::new(config)?.serve(router, Shutdown::on_signals()?)?;
    Ok(())
}

async fn read(State(users): State<Users>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse::<UserId>() else { return StatusCode::NOT_FOUND.into_response() };
    let record = match users.cached(id) {
        Some(record) => Ok(Some(record)),
        None => users.read(id).await,
    };
    match record {
        Ok(Some(record)) => json(record.body),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Parses, validates and serialises.
async fn echo(body: Bytes) -> Response {
    let limits = api::user::Limits::default();
    match api::user::parse::document(&body, &limits).map(|document| sonic_rs::to_vec(&document)) {
        Ok(Ok(text)) => json(text.into()),
        _ => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
    }
}

fn baseline(address: SocketAddr, workers: NonZero<usize>, database: &str) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers.get()).enable_all().build()?;
    runtime.block_on(async {
        let pool = PgPoolOptions::new().max_connections(POOL).connect(database).await?;
        let router = Router::new()
            .route("/users/{id}", get(read_by_pool))
            .route("/echo", post(echo_serde))
            .with_state(pool);
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, router).await?;
        Ok(())
    })
}

async fn read_by_pool(State(pool): State<PgPool>, Path(id): Path<String>) -> Response {
    let Ok(UserId(id)) = id.parse() else { return StatusCode::NOT_FOUND.into_response() };
    let row =
        sqlx::query("SELECT id, version, body FROM users WHERE id = $1").bind(id).fetch_optional(&pool).await;
    match row.map(|row| row.map(|row| row.get::<Vec<u8>, _>(2))) {
        Ok(Some(body)) => json(body.into()),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn echo_serde(
    body: axum::Json<serde_json::Value>,
) -> Result<axum::Json<serde_json::Value>, Infallible> {
    Ok(body)
}

fn actix(address: SocketAddr, workers: NonZero<usize>, options: &Options) -> Outcome {
    let opening = runtime()?;
    let users = opening.block_on(Users::open(options))?;
    actix_web::rt::System::new().block_on(async move {
        let app = move || {
            App::new()
                .app_data(web::Data::new(users.clone()))
                .route("/users/{id}", web::get().to(read_in_actix))
        };
        HttpServer::new(app).workers(workers.get()).bind(address)?.run().await
    })?;
    Ok(())
}

async fn read_in_actix(users: web::Data<Users>, id: web::Path<String>) -> HttpResponse {
    let Ok(id) = id.parse::<UserId>() else { return HttpResponse::NotFound().finish() };
    match users.get(id).await {
        Ok(Some(record)) => HttpResponse::Ok().content_type("application/json").body(record.body),
        Ok(None) => HttpResponse::NotFound().finish(),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}
