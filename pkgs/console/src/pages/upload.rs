//! Uploads files: in one piece with a plain form, or in resumable pieces with a script.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use service::problem::{self, Problem};
use sha2::{Digest, Sha256};

use super::files::{SCREEN, after, screen, writer};
use super::operation;
use crate::app::App;
use crate::fields::{Fields, query};
use crate::files::{UrlPath, upload};
use crate::sent_file::SentFile;
use crate::upstream::{Answer, Error};
use crate::visitor::Visitor;

/// The longest piece, in bytes. The script sends pieces of this size.
const MOST_PIECE: usize = 4 << 20;

/// The headers that are passed on from requests to the writer, and from its answers to the script.
const ASKED: [&str; 4] = ["upload-length", "upload-metadata", "upload-offset", "upload-checksum"];
const ANSWERED: [&str; 9] = [
    "upload-offset",
    "upload-length",
    "upload-expires",
    "tus-resumable",
    "tus-version",
    "tus-extension",
    "tus-max-size",
    "tus-checksum-algorithm",
    "content-type",
];

/// Uploads a whole file from a plain form.
pub(crate) async fn form(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    fields: Fields,
    file: Option<SentFile>,
) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let within = UrlPath::new(fields.get("path"));
    let (Some(within), Some(file)) = (within, file.filter(|file| !file.name.is_empty())) else {
        let wrong = (StatusCode::UNPROCESSABLE_ENTITY, "Choose a file first.");
        return screen(&app, &visitor, &fields, Some(wrong)).await;
    };
    let fields = Fields::parse(query(&[("replace", fields.get("replace"))]).as_bytes());
    let sent = send(&app, &visitor, &within, &file, fields.has("replace")).await;
    after(&app, &visitor, &within, sent).await
}

/// Sends a file in one piece. If that fails, cancels the upload.
async fn send(
    app: &Arc<App>,
    visitor: &Visitor,
    within: &UrlPath,
    file: &SentFile,
    replace: bool,
) -> Result<(), Error> {
    let writer = writer(app)?;
    let by = operation::by(visitor);
    let Some(path) = within.below(&file.name) else {
        return Err(Error::Refused(Box::new(Problem::unprocessable("no file can be called that"))));
    };
    let sha256 = HEXLOWER.encode(&<[u8; 32]>::from(Sha256::digest(&file.bytes)));
    let metadata = format!(
        "path {},sha256 {}{}",
        BASE64_STANDARD.encode(path.as_str()),
        BASE64_STANDARD.encode(sha256),
        if replace { ",replace" } else { "" }
    );
    let length = file.bytes.len().to_string();
    let fields = [("upload-length", length.as_str()), ("upload-metadata", &metadata)];
    let begun = well(upload(writer, (Method::POST, "/uploads"), &fields, Vec::new(), &by).await?);
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => {
            operation::note(app, visitor, "files.upload", path.as_str(), false).await;
            return Err(error);
        }
    };
    let place = begun.fields.get(header::LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default();
    let done = if file.bytes.is_empty() {
        Ok(())
    } else {
        let fields = [("upload-offset", "0")];
        upload(writer, (Method::PATCH, place), &fields, file.bytes.to_vec(), &by)
            .await
            .and_then(well)
            .map(drop)
    };
    if done.is_err() {
        let _ = upload(writer, (Method::DELETE, place), &[], Vec::new(), &by).await;
    }
    operation::note(app, visitor, "files.upload", path.as_str(), done.is_ok()).await;
    done
}

fn well(answer: Answer) -> Result<Answer, Error> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let unknown = || Problem::new(answer.status.as_u16(), "the writer does not say why");
    Err(Error::Refused(Box::new(serde_json::from_slice(&answer.body).unwrap_or_else(|_| unknown()))))
}

/// Cancels a running upload.
pub(crate) async fn end(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let id = fields.get("id");
    let within = UrlPath::new(fields.get("path")).or_else(|| UrlPath::new("/"));
    let Some(within) = within else { return StatusCode::NOT_FOUND.into_response() };
    let ended = match writer(&app) {
        Ok(writer) if is_id(id) => {
            let place = format!("/uploads/{id}");
            let ended =
                upload(writer, (Method::DELETE, &place), &[], Vec::new(), &operation::by(&visitor)).await;
            ended.and_then(well).map(drop)
        }
        Ok(_) => Err(Error::Refused(Box::new(Problem::not_found("there is no such upload")))),
        Err(error) => Err(error),
    };
    operation::note(&app, &visitor, "files.upload.end", id, ended.is_ok()).await;
    after(&app, &visitor, &within, ended).await
}

/// Begins an upload in pieces.
pub(crate) async fn begin(State(app): State<Arc<App>>, visitor: Visitor, request: Request) -> Response {
    pass(&app, &visitor, "/uploads", request).await
}

/// Continues an upload, reports its progress, or cancels it.
pub(crate) async fn go_on(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    visitor: Visitor,
    request: Request,
) -> Response {
    if !is_id(&id) {
        return refused(&Problem::not_found("there is no such upload"));
    }
    pass(&app, &visitor, &format!("/uploads/{id}"), request).await
}

fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The answer to an upload whose visitor has no session any more, for the script to show.
pub(crate) fn signed_out() -> Response {
    let why = "you are signed out: sign in, and send it once more; it goes on where it was";
    refused(&Problem::unauthorized(why))
}

/// Forwards requests about an upload to the writer, for users who may write everything.
async fn pass(app: &Arc<App>, visitor: &Visitor, path: &str, request: Request) -> Response {
    if let Err(response) = operation::allowed(app, visitor, SCREEN).await {
        if response.status().is_redirection() {
            return signed_out();
        }
        return refused(&Problem::new(response.status().as_u16(), "that is not for everybody"));
    }
    let writer = match writer(app) {
        Ok(writer) => writer,
        Err(error) => return refused(&Problem::not_found(error.to_string())),
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MOST_PIECE).collect().await else {
        return refused(&Problem::too_large(format!(
            "a piece has {MOST_PIECE} bytes at most, and this broke off or is longer"
        )));
    };
    let text = |name: &'static str| Some((name, parts.headers.get(name)?.to_str().ok()?));
    let fields: Vec<_> = ASKED.into_iter().filter_map(text).collect();
    let (method, body) = (parts.method, body.to_bytes().to_vec());
    match upload(writer, (method.clone(), path), &fields, body, &operation::by(visitor)).await {
        Err(error) => {
            let status = if matches!(error, Error::Down { .. }) { 503 } else { 502 };
            refused(&Problem::new(status, error.to_string()))
        }
        Ok(answer) => {
            if let Some(place) = answer.fields.get("linerate-path").and_then(|place| place.to_str().ok()) {
                // The writer names the file once it is in place, or if a piece of it is refused.
                operation::note(app, visitor, "files.upload", place, answer.status.is_success()).await;
            } else if method == Method::DELETE && answer.status.is_success() {
                operation::note(app, visitor, "files.upload.end", path, true).await;
            }
            passed(answer)
        }
    }
}

fn passed(answer: Answer) -> Response {
    let mut fields = HeaderMap::new();
    for name in ANSWERED {
        if let Some(value) = answer.fields.get(name) {
            fields.insert(HeaderName::from_static(name), value.clone());
        }
    }
    let place = answer.fields.get(header::LOCATION).and_then(|place| place.to_str().ok());
    if let Some(place) = place.and_then(|place| format!("/files{place}").parse().ok()) {
        fields.insert(header::LOCATION, place);
    }
    (answer.status, fields, Body::from(answer.body)).into_response()
}

fn refused(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
    (status, [(header::CONTENT_TYPE, problem::CONTENT_TYPE)], problem.json()).into_response()
}
