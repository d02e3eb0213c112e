//! The writer as a service: HTTP on a Unix socket, for certain users.
//!
//! ```text
//! POST   /uploads            begins an upload (tus): Upload-Length, and Upload-Metadata with path, replace and sha256
//! HEAD   /uploads/ID         how far it is
//! PATCH  /uploads/ID         more of it, from Upload-Offset on
//! DELETE /uploads/ID         gives it up
//! GET    /uploads            those under way, and what takes room
//! POST   /rename             {"from", "to", "replace"}
//! POST   /delete             {"path"}: a file, a link, or an empty directory
//! POST   /directory          {"path"}: makes one
//! ```
//!
//! Paths are escaped as in URLs. `linerate-by` names the user on whose behalf a request is made. It is only logged; no
//! decision depends on it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{head, post};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use listener::{Config, Listener, Peer};
use serde::{Deserialize, Serialize};
use service::problem::{self, Problem};
use service::shutdown::Shutdown;
use service::socket::Address;
use tokio::time::timeout;

use super::path::WritePath;
use super::tree;
use super::tus::{self, Checksum, Metadata};
use super::uploads::{Error, Held, Limits, Published, Uploads, Writing};
use crate::helper::serve::User;

/// The longest `PATCH`, in bytes.
const MOST_PIECE: u64 = 64 << 20;

/// How many bytes are written before they are synced to disk.
const COMMITTED: usize = 2 << 20;

/// The longest body of a request that isn't a piece of a file, in bytes.
const MOST_ASKED: usize = 16 << 10;

/// How long to wait for another request that writes to the same upload.
const TURN: Duration = Duration::from_secs(5);

/// How often to look for abandoned uploads.
const SWEEP: Duration = Duration::from_secs(60);

const PLACE: HeaderName = HeaderName::from_static("linerate-path");
const DIGEST: HeaderName = HeaderName::from_static("linerate-sha256");

/// Why the writer doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The root.
    #[error("{}: {source}", root.display())]
    Root {
        /// Its path.
        root: std::path::PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The socket.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// Signals or threads.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// State that requests share.
#[derive(Debug)]
struct Writer {
    uploads: Uploads,
    users: BTreeSet<User>,
}

/// Writes below `root` for these users until the process is asked to stop.
///
/// # Errors
/// When it can't start.
pub fn serve(
    address: &Address,
    root: &FilePath,
    users: BTreeSet<User>,
    limits: Limits,
) -> Result<(), ServeError> {
    // Everybody may read new files. Uploads in progress set a stricter mode.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let uploads =
        Uploads::open(root, limits).map_err(|source| ServeError::Root { root: root.to_owned(), source })?;
    let mut config = Config::private(address.clone());
    config.limits.body_bytes = MOST_PIECE;
    config.limits.body_bytes_total = 4 * MOST_PIECE;
    config.limits.connections = 64;
    let listener = Listener::new(config)?;
    let shutdown = Shutdown::on_signals()?;
    let writer = Arc::new(Writer { uploads, users });
    let thread = listener.start_boxed("files-writer", router(Arc::clone(&writer)), &shutdown)?;
    let _ = writeln!(io::stdout(), "writer    {address}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let mut often = tokio::time::interval(SWEEP);
        let stop = shutdown.wait();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = often.tick() => writer.uploads.sweep(),
            }
        }
    });
    if thread.join().is_err() {
        shutdown.fail();
    }
    Ok(shutdown.outcome()?)
}

fn router(writer: Arc<Writer>) -> Router {
    Router::new()
        .route("/uploads", post(begin).get(list).options(offer))
        .route("/uploads/{id}", head(tell).patch(append).delete(end))
        .route("/rename", post(rename))
        .route("/delete", post(delete))
        .route("/directory", post(directory))
        .layer(from_fn_with_state(Arc::clone(&writer), guard))
        .with_state(writer)
}

/// Refuses users who may not connect, and other versions of the protocol.
async fn guard(State(writer): State<Arc<Writer>>, request: Request, next: Next) -> Response {
    let uid = request.extensions().get::<Peer>().and_then(|peer| peer.uid);
    if !uid.is_some_and(|uid| writer.users.contains(&User::from(uid))) {
        note(&Line { uid, error: Some("not a user who may ask"), ..Line::new("connect", "") });
        return refused(&Problem::forbidden("not a user who may ask"));
    }
    let is_tus = request.uri().path().starts_with("/uploads")
        && !matches!(*request.method(), Method::OPTIONS | Method::GET);
    let version = request.headers().get("tus-resumable");
    let mut response = if is_tus && version.is_none_or(|version| version != tus::VERSION) {
        refused(&Problem::new(412, format!("Tus-Resumable is {}", tus::VERSION)))
    } else {
        next.run(request).await
    };
    let fields = response.headers_mut();
    fields.insert("tus-resumable", HeaderValue::from_static(tus::VERSION));
    fields.insert("tus-version", HeaderValue::from_static(tus::VERSION));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Answers which protocol is supported.
async fn offer(State(writer): State<Arc<Writer>>) -> Response {
    let most = HeaderValue::from(writer.uploads.limits.file_bytes);
    let fields = [
        (HeaderName::from_static("tus-extension"), HeaderValue::from_static(tus::EXTENSIONS)),
        (HeaderName::from_static("tus-checksum-algorithm"), HeaderValue::from_static(tus::ALGORITHMS)),
        (HeaderName::from_static("tus-max-size"), most),
    ];
    (StatusCode::NO_CONTENT, fields).into_response()
}

async fn begin(State(writer): State<Arc<Writer>>, fields: HeaderMap) -> Response {
    let Some(length) = tus::number(&fields, "upload-length") else {
        return refused(&Problem::bad_request("Upload-Length is how many bytes the file has"));
    };
    let text = fields.get("upload-metadata").and_then(|text| text.to_str().ok()).unwrap_or_default();
    let Some(metadata) = Metadata::parse(text) else {
        let why =
            "Upload-Metadata is keys with values in base64: path, and replace and sha256 where it has them";
        return refused(&Problem::bad_request(why));
    };
    let by = by(&fields);
    let (place, who, this) = (metadata.path.clone(), by.clone(), Arc::clone(&writer));
    let begun = blocking(move || {
        let id = this.uploads.begin(&metadata, length, &who)?;
        // An empty upload is already complete.
        let published = if length == 0 {
            let held = this.uploads.get(&id)?.try_lock_owned().map_err(|_| Error::Unknown)?;
            let writing = this.uploads.resume(&id, held)?;
            match this.uploads.publish(writing) {
                Ok((published, _)) => {
                    log_published(&published, 0, &who);
                    Some(published)
                }
                Err(error) => {
                    if let Ok(held) = this
                        .uploads
                        .get(&id)
                        .and_then(|slot| slot.try_lock_owned().map_err(|_| Error::Unknown))
                    {
                        this.uploads.end(&id, held);
                    }
                    return Err(error);
                }
            }
        } else {
            None
        };
        Ok((id, published))
    })
    .await;
    let (id, published) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            note(&Line { by: Some(&by), error: Some(&error.to_string()), ..Line::new("upload", &place) });
            return refused(&problem(&error));
        }
    };
    let mut response = StatusCode::CREATED.into_response();
    let location = HeaderValue::from_str(&format!("/uploads/{id}"));
    response.headers_mut().insert(header::LOCATION, location.unwrap_or(HeaderValue::from_static("/uploads")));
    if let Some(published) = published {
        told(&published, response.headers_mut());
    }
    response
}

/// Answers how far an upload has got.
async fn tell(State(writer): State<Arc<Writer>>, Path(id): Path<String>) -> Response {
    match held(&writer, &id).await {
        Err(problem) => refused(&problem),
        Ok(held) => {
            let mut response = StatusCode::OK.into_response();
            let offset = if held.done { held.length } else { held.offset };
            response.headers_mut().insert("upload-length", held.length.into());
            progress(&held, offset, response.headers_mut());
            response
        }
    }
}

/// Receives more of an upload, and after the last piece moves the file into place.
async fn append(
    State(writer): State<Arc<Writer>>,
    Path(id): Path<String>,
    fields: HeaderMap,
    body: Body,
) -> Response {
    let is_piece = fields.get(header::CONTENT_TYPE).is_some_and(|it| it == "application/offset+octet-stream");
    if !is_piece {
        return refused(&Problem::new(415, "a piece is application/offset+octet-stream"));
    }
    let Some(offset) = tus::number(&fields, "upload-offset") else {
        return refused(&Problem::bad_request("Upload-Offset is where the piece begins"));
    };
    let checksum = match Checksum::of(&fields) {
        Ok(checksum) => checksum,
        Err(error) => return refused(&Problem::bad_request(error.to_string())),
    };
    let held = match held(&writer, &id).await {
        Ok(held) => held,
        Err(problem) => return refused(&problem),
    };
    let known = if held.done { held.length } else { held.offset };
    if known != offset {
        let mut response = refused(&Problem::conflict(format!("the upload goes on at byte {known}")));
        progress(&held, known, response.headers_mut());
        return response;
    }
    if held.done {
        let mut response = StatusCode::NO_CONTENT.into_response();
        progress(&held, known, response.headers_mut());
        name(&held.path, response.headers_mut());
        return response;
    }
    let announced = tus::number(&fields, "content-length").unwrap_or(0);
    if announced > held.length - held.offset {
        return refused(&Problem::too_large("the piece goes on behind the end that was said"));
    }
    let (path, by) = (held.path.clone(), by(&fields));
    let taken = take(&writer, id, held, checksum, body, &by).await;
    match taken {
        Ok(Taken { held, published, problem }) => {
            let mut response =
                problem.as_deref().map_or_else(|| StatusCode::NO_CONTENT.into_response(), refused);
            progress(&held, held.offset, response.headers_mut());
            if let Some(published) = published {
                told(&published, response.headers_mut());
            }
            response
        }
        Err(problem) => {
            note(&Line { by: Some(&by), error: Some(&problem.detail), ..Line::new("upload", &path) });
            let mut response = refused(&problem);
            name(&path, response.headers_mut());
            response
        }
    }
}

/// The result for a piece.
struct Taken {
    held: Held,
    /// Set if it was the last piece.
    published: Option<Published>,
    /// What interrupted the piece; everything before that was accepted.
    problem: Option<Box<Problem>>,
}

/// Receives a piece. A piece with a checksum is accepted completely or not at all.
async fn take(
    writer: &Arc<Writer>,
    id: String,
    held: Held,
    mut checksum: Option<Checksum>,
    mut body: Body,
    by: &str,
) -> Result<Taken, Box<Problem>> {
    let this = Arc::clone(writer);
    let mut writing = blocking(move || this.uploads.resume(&id, held)).await.map_err(boxed)?;
    let whole = checksum.is_some();
    let (mut pieces, mut some, mut broken) = (Vec::new(), 0, None);
    loop {
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => {
                let why = "the piece broke off, was too slow, or is longer than one may be";
                broken = Some(Box::new(Problem::bad_request(why)));
                break;
            }
            None => break,
        };
        if frame.len() as u64 > writing.left() - some as u64 {
            return Err(Box::new(Problem::too_large("the piece goes on behind the end that was said")));
        }
        if let Some(checksum) = &mut checksum {
            checksum.update(&frame);
        }
        some += frame.len();
        pieces.push(frame);
        if some >= COMMITTED {
            writing = write(writer, writing, std::mem::take(&mut pieces), !whole).await?;
            some = 0;
        }
    }
    if let Some(broken) = broken.take_if(|_| whole) {
        return Err(broken);
    }
    if checksum.is_some_and(|checksum| !checksum.holds()) {
        return Err(Box::new(Problem::new(
            tus::CHECKSUM_MISMATCH,
            "the piece is not what its checksum says",
        )));
    }
    let writing = write(writer, writing, pieces, true).await?;
    let (this, by) = (Arc::clone(writer), by.to_owned());
    let (held, published) = blocking(move || {
        if writing.left() > 0 {
            return Ok((writing.into_held(), None));
        }
        let (published, held) = this.uploads.publish(writing)?;
        log_published(&published, held.length, &by);
        Ok((held, Some(published)))
    })
    .await
    .map_err(|error| match error {
        // Not 404, by which a client gives the upload up: it can send the last piece again once there is one.
        Error::Tree(tree::Error::Missing) => {
            Box::new(Problem::conflict("the file's directory is not there any more"))
        }
        error => boxed(error),
    })?;
    Ok(Taken { held, published, problem: broken })
}

/// Writes pieces. With `commit`, also syncs them, unless they complete the upload: moving it into place syncs the whole
/// file.
async fn write(
    writer: &Arc<Writer>,
    mut writing: Writing,
    pieces: Vec<Bytes>,
    commit: bool,
) -> Result<Writing, Box<Problem>> {
    let this = Arc::clone(writer);
    let written = blocking(move || {
        pieces.iter().try_for_each(|piece| writing.write(piece))?;
        if commit && writing.left() > 0 && writing.is_ahead() {
            this.uploads.commit(&mut writing)?;
        }
        Ok(writing)
    });
    written.await.map_err(boxed)
}

async fn end(State(writer): State<Arc<Writer>>, Path(id): Path<String>, fields: HeaderMap) -> Response {
    let held = match held(&writer, &id).await {
        Ok(held) => held,
        Err(problem) => return refused(&problem),
    };
    let (path, by) = (held.path.clone(), by(&fields));
    let this = Arc::clone(&writer);
    let ended = blocking(move || {
        this.uploads.end(&id, held);
        Ok(())
    });
    note(&Line { by: Some(&by), ..Line::new("upload.end", &path) });
    match ended.await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => refused(&problem(&error)),
    }
}

/// An upload, for clients.
#[derive(Serialize)]
struct Shown {
    id: String,
    path: String,
    length: u64,
    offset: u64,
    by: String,
    expires: u64,
}

async fn list(State(writer): State<Arc<Writer>>) -> Response {
    let this = Arc::clone(&writer);
    let known = blocking(move || {
        let uploads = this.uploads.list().into_iter().map(|(id, record)| Shown {
            id,
            path: record.path,
            length: record.length,
            offset: record.offset,
            by: record.by,
            expires: record.expires,
        });
        Ok((uploads.collect::<Vec<_>>(), this.uploads.usage()?))
    });
    match known.await {
        Ok((uploads, usage)) => {
            let Limits { file_bytes, bytes, files, .. } = writer.uploads.limits;
            let text = serde_json::json!({
                "uploads": uploads,
                "used": usage,
                "most": { "file_bytes": file_bytes, "bytes": bytes, "files": files },
            });
            ([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response()
        }
        Err(error) => refused(&problem(&error)),
    }
}

/// A request about one or two paths.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default, alias = "from")]
    path: String,
    to: Option<String>,
    #[serde(default)]
    replace: bool,
}

async fn rename(State(writer): State<Arc<Writer>>, fields: HeaderMap, body: Body) -> Response {
    change(writer, "rename", fields, body, |uploads, asked| {
        let from = WritePath::existing(&asked.path)?;
        let to = WritePath::new(asked.to.as_deref().unwrap_or_default())?;
        Ok(uploads.tree.rename(&from, &to, asked.replace)?)
    })
    .await
}

async fn delete(State(writer): State<Arc<Writer>>, fields: HeaderMap, body: Body) -> Response {
    change(writer, "delete", fields, body, |uploads, asked| {
        Ok(uploads.tree.delete(&WritePath::existing(&asked.path)?)?)
    })
    .await
}

async fn directory(State(writer): State<Arc<Writer>>, fields: HeaderMap, body: Body) -> Response {
    change(writer, "directory", fields, body, |uploads, asked| {
        let path = WritePath::new(&asked.path)?;
        let files = uploads.limits.files;
        if uploads.usage()?.files >= files {
            return Err(Error::Files(files));
        }
        Ok(uploads.tree.make_directory(&path)?)
    })
    .await
}

/// Makes a change and logs it.
async fn change(
    writer: Arc<Writer>,
    action: &'static str,
    fields: HeaderMap,
    body: Body,
    work: fn(&Uploads, &Asked) -> Result<(), Error>,
) -> Response {
    let body = Limited::new(body, MOST_ASKED).collect().await.map(|body| body.to_bytes());
    let asked = body.ok().and_then(|body| serde_json::from_slice::<Asked>(&body).ok());
    let Some(asked) = asked else { return refused(&Problem::bad_request("this is no request")) };
    let by = by(&fields);
    let done = blocking(move || {
        let done = work(&writer.uploads, &asked);
        writer.uploads.changed();
        let (to, error) = (asked.to.as_deref(), done.as_ref().err().map(ToString::to_string));
        note(&Line { by: Some(&by), to, error: error.as_deref(), ..Line::new(action, &asked.path) });
        done
    });
    done.await.map_or_else(|error| refused(&problem(&error)), |()| StatusCode::NO_CONTENT.into_response())
}

/// Waits for exclusive access to an upload.
async fn held(writer: &Writer, id: &str) -> Result<Held, Box<Problem>> {
    let slot = writer.uploads.get(id).map_err(boxed)?;
    let held = timeout(TURN, slot.lock_owned()).await;
    let held = held.map_err(|_| Box::new(Problem::new(423, "another request writes to this upload")))?;
    // The upload may have expired or been cancelled in the meantime.
    if held.expires <= super::uploads::now() || writer.uploads.get(id).is_err() {
        return Err(boxed(Error::Unknown));
    }
    Ok(held)
}

/// Runs work that may wait for the disk on a blocking thread. It goes on if the client leaves, so it logs its changes
/// itself.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(Error::Tree(tree::Error::Failed(rustix::io::Errno::IO))))
}

fn progress(held: &Held, offset: u64, fields: &mut HeaderMap) {
    fields.insert("upload-offset", offset.into());
    let until = std::time::UNIX_EPOCH + Duration::from_secs(held.expires);
    if let Ok(until) = HeaderValue::from_str(&httpdate::fmt_http_date(until)) {
        fields.insert("upload-expires", until);
    }
}

/// Logs that a file is in place.
fn log_published(published: &Published, bytes: u64, by: &str) {
    let sha256 = Some(published.sha256.as_str());
    note(&Line { by: Some(by), bytes: Some(bytes), sha256, ..Line::new("upload", &published.path) });
}

/// Adds to the response's headers that a file is in place.
fn told(published: &Published, fields: &mut HeaderMap) {
    name(&published.path, fields);
    if let Ok(digest) = HeaderValue::from_str(&published.sha256) {
        fields.insert(DIGEST, digest);
    }
}

/// Adds the path of an upload to the response's headers, for the audit log of whoever asks for others.
fn name(path: &str, fields: &mut HeaderMap) {
    if let Ok(path) = HeaderValue::from_str(path) {
        fields.insert(PLACE, path);
    }
}

/// The user on whose behalf a request is made, for the log.
fn by(fields: &HeaderMap) -> String {
    // Not `to_str`, which refuses names that aren't ASCII.
    let text = fields.get("linerate-by").map(|by| String::from_utf8_lossy(by.as_bytes())).unwrap_or_default();
    text.chars().filter(|it| !it.is_control()).take(200).collect()
}

fn boxed(error: Error) -> Box<Problem> {
    Box::new(problem(&error))
}

fn problem(error: &Error) -> Problem {
    let status = match error {
        Error::Path(_) | Error::Digest(_) => 422,
        Error::Large(_) => 413,
        Error::Bytes(_) | Error::Files(_) | Error::Tree(tree::Error::Full) => 507,
        Error::Busy(_) => 503,
        Error::Unknown | Error::Tree(tree::Error::Missing) => 404,
        Error::Tree(tree::Error::Denied) => 403,
        Error::Tree(tree::Error::Failed(_)) => 500,
        Error::Tree(_) => 409,
    };
    Problem::new(status, error.to_string())
}

fn refused(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, problem::CONTENT_TYPE)], problem.json()).into_response()
}

/// A request and its outcome, as logged.
#[derive(Debug, Serialize)]
struct Line<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    by: Option<&'a str>,
    action: &'a str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn new(action: &'a str, target: &'a str) -> Self {
        Self {
            kind: "audit",
            uid: None,
            by: None,
            action,
            target,
            to: None,
            bytes: None,
            sha256: None,
            error: None,
        }
    }
}

fn note(line: &Line<'_>) {
    if let Ok(text) = serde_json::to_string(line) {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upload_waits_for_a_directory_that_went_away() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = root.path().join("pub");
        let expire = Duration::from_secs(60);
        let limits = Limits { file_bytes: 100, bytes: 100, files: 10, uploads: 3, expire };
        let uploads = Uploads::open(root.path(), limits).expect("a root");
        let writer = Arc::new(Writer { uploads, users: BTreeSet::new() });
        std::fs::create_dir(&directory).expect("a directory");
        let metadata = Metadata { path: "/pub/a".into(), ..Metadata::default() };
        let id = writer.uploads.begin(&metadata, 3, "ada").expect("an upload");
        let piece = || {
            let fields = [
                (header::CONTENT_TYPE, HeaderValue::from_static("application/offset+octet-stream")),
                (HeaderName::from_static("upload-offset"), HeaderValue::from_static("0")),
            ];
            append(State(Arc::clone(&writer)), Path(id.clone()), HeaderMap::from_iter(fields), "abc".into())
        };
        std::fs::remove_dir(&directory).expect("an empty directory");
        let refused = piece().await;
        assert_eq!(refused.status(), StatusCode::CONFLICT);
        assert_eq!(refused.headers()[PLACE], "/pub/a");
        std::fs::create_dir(&directory).expect("a directory");
        let done = piece().await;
        assert_eq!(done.status(), StatusCode::NO_CONTENT);
        assert_eq!(std::fs::read(directory.join("a")).expect("a file"), b"abc");
    }
}
