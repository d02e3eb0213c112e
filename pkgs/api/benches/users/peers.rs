//! What is measured: `linerate-api serve` itself, and its peers. All answer `GET /v1/users/ID` with a user as it is
//! stored, and `POST /v1/users:validate` with the document that was sent, once it is found valid.

use std::env;
use std::error::Error as Cause;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use actix_web::{App, HttpResponse, HttpServer, web};
use api::json::object::Unknown;
use api::user::{Document, UserId};
use api::users::{DatabaseUrl, Options, Users};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bench::server::{Placement, Server, free_address};
use bench::{Error, setup};
use sqlx::Row;
use sqlx::postgres::{PgPool, PgPoolOptions};

/// The program as installed.
pub const OURS: &str = "linerate-api";
/// Another build of it; see [`setup::other_build`].
pub const OTHER: &str = "other build";
/// axum::serve, an sqlx pool with a query on each connection, serde_json.
pub const AXUM: &str = "axum + sqlx";
/// actix-web with this service's store, cache and parser.
pub const ACTIX: &str = "actix-web";

/// The word that makes this executable serve: `serve NAME ADDRESS WORKERS DATABASE SIZE`, the last in bytes of cache,
/// or for [`AXUM`] in connections of its pool.
const SERVE: &str = "serve";

/// Connections of pgbench.
pub const PGBENCH: u32 = 10;

/// Pool sizes to try; the fastest is used.
pub const POOLS: [u64; 6] = [2, 4, 10, 16, 32, 64];

type Outcome = Result<(), Box<dyn Cause + Send + Sync>>;

/// Serves if the command line says so. The bench calls this before anything else.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, name, address, workers, database, size] = arguments.as_slice() else { return None };
    if word != SERVE {
        return None;
    }
    let (address, workers, size) = (address.parse().ok()?, workers.parse().ok()?, size.parse().ok()?);
    let options = || {
        let database: DatabaseUrl = database.parse()?;
        Ok::<_, api::users::InvalidDatabaseUrl>(Options {
            cache_bytes: size,
            workers,
            ..Options::new(database)
        })
    };
    let served = match name.as_str() {
        AXUM => baseline(address, workers, database, u32::try_from(size).ok()?),
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

/// Starts one of them, with a `size` as in [`SERVE`].
pub fn start(name: &'static str, placement: Placement, database: &str, size: u64) -> Result<Server, Error> {
    let address = free_address()?;
    let (address_text, workers, size) =
        (address.to_string(), placement.workers.to_string(), size.to_string());
    let ours = match name {
        OURS => Some(PathBuf::from(env!("CARGO_BIN_EXE_linerate-api"))),
        OTHER => setup::other_build("linerate-api")?,
        _ => None,
    };
    let mut command;
    if let Some(program) = ours {
        command = placement.command(program);
        command.args(["serve", "--listen", &address_text, "--workers", &workers]);
        command.args(["--database-url", database, "--cache-bytes", &size]);
    } else {
        command = placement.command(env::current_exe()?);
        command.args([SERVE, name, &address_text, &workers, database, &size]);
    }
    Server::start(name, address, &mut command)
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The service requires clients to revalidate a cached user.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// A user as the service sends one.
fn user(version: i64, body: Vec<u8>) -> Response {
    let mut response = Response::new(body.into());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, JSON);
    fields.insert(header::CACHE_CONTROL, NO_CACHE);
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        fields.insert(header::ETAG, tag);
    }
    response
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

fn baseline(address: SocketAddr, workers: NonZero<usize>, database: &str, pool: u32) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers.get()).enable_all().build()?;
    runtime.block_on(async {
        // All connections are open from the start, and there is no default ping before each query.
        let options =
            PgPoolOptions::new().min_connections(pool).max_connections(pool).test_before_acquire(false);
        let pool = options.connect(database).await?;
        let router = Router::new()
            .route("/v1/users/{id}", get(read_by_pool))
            .route("/v1/users:validate", post(validate))
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
    match row {
        Ok(Some(row)) => user(row.get(1), row.get(2)),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Parses, validates and serialises.
async fn validate(body: Bytes) -> Response {
    // axum's own extractor does the same, but needs an owned type.
    let Ok(document) = serde_json::from_slice::<Document<'_>>(&body) else {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    };
    if document.faults(Unknown::Refuse).count() > 0 {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    }
    axum::Json(document).into_response()
}

fn actix(address: SocketAddr, workers: NonZero<usize>, options: &Options) -> Outcome {
    let opening = runtime()?;
    let users = opening.block_on(Users::open(options))?;
    actix_web::rt::System::new().block_on(async move {
        let app = move || {
            App::new()
                .app_data(web::Data::new(users.clone()))
                .route("/v1/users/{id}", web::get().to(read_in_actix))
                .route("/v1/users:validate", web::post().to(validate_in_actix))
        };
        HttpServer::new(app).workers(workers.get()).bind(address)?.run().await
    })?;
    Ok(())
}

async fn read_in_actix(users: web::Data<Users>, id: web::Path<String>) -> HttpResponse {
    let Ok(id) = id.parse::<UserId>() else { return HttpResponse::NotFound().finish() };
    match users.get(id).await {
        Ok(Some(record)) => HttpResponse::Ok()
            .content_type("application/json")
            .insert_header(("cache-control", "no-cache"))
            .insert_header(("etag", format!("\"{}\"", record.version)))
            .body(record.body),
        Ok(None) => HttpResponse::NotFound().finish(),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

/// The way the service does it.
async fn validate_in_actix(body: Bytes) -> HttpResponse {
    let document = api::user::parse::document(&body, &api::user::Limits::default());
    match document.map(|document| sonic_rs::to_vec(&document)) {
        Ok(Ok(text)) => HttpResponse::Ok().content_type("application/json").body(text),
        _ => HttpResponse::UnprocessableEntity().finish(),
    }
}

/// Requires all of these to send the same answer to a request: the status, the headers except for the date, in any
/// order, and the body.
pub fn require_the_same(servers: &[&Server], request: &str) -> Result<(), Error> {
    let mut first: Option<Answer> = None;
    for server in servers {
        let answer = answer(server.address(), request)?;
        match &first {
            Some(first) if *first != answer => {
                return Err(Error::Load {
                    server: server.name().into(),
                    case: request.lines().next().unwrap_or_default().into(),
                    what: format!("it answers {answer:?}, where others answer {first:?}"),
                });
            }
            Some(_) => {}
            None => first = Some(answer),
        }
    }
    Ok(())
}

/// Status line and headers, and the body.
type Answer = (Vec<String>, String);

fn answer(address: SocketAddr, request: &str) -> Result<Answer, Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let lines = head.lines().map(str::to_ascii_lowercase);
    let mut lines: Vec<String> = lines.filter(|line| !line.starts_with("date:")).collect();
    lines.sort_unstable();
    Ok((lines, body.to_owned()))
}
