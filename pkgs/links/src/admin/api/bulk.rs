//! Import and export. The socket side uses streams, the store side uses blocking readers and writers, and a channel of
//! a few chunks connects them, so neither side runs ahead.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use service::problem::Problem;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{body, domains};
use crate::admin::audit::Audit;
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::query;
use crate::admin::protocol::respond::uncached;
use crate::admin::{State, auth};
use crate::store::{Error, OnConflict, Scope, Tally, carrying};
use crate::transfer::{self, Cause, Format, ImportError, ImportOptions, ReadError, Writer};

/// The header field with the number of links that an export disables.
pub(crate) const LOCKED: &str = "linerate-locked";

/// The size of an export's chunk, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// How many chunks may wait between the socket and the thread.
const CHUNKS: usize = 4;

/// How long the other end of a transfer may go without progress.
pub(in crate::admin) const STALLED: Duration = Duration::from_secs(30);

/// Parameters of an export.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ExportParameters {
    /// The format of the links.
    #[param(inline)]
    format: Format,
    /// Whether to include password hashes, which requires a token that may write.
    #[serde(default)]
    hashes: bool,
    /// Only links of this domain; `default` is the one without a name. All domains if absent.
    domain: Option<String>,
}

/// Export all links
///
/// Streams all links. Without `hashes=true`, passwords are left out, and links with a password are exported as
/// disabled, so that an import does not make them public.
#[utoipa::path(get, path = "/api/v1/links/export", tag = "bulk", operation_id = "exportLinks",
    params(ExportParameters), security(("bearer" = ["read"])),
    responses((status = 200, description = "The links, by age", content(
        (String = "text/csv"), (Vec<crate::store::Record> = "application/json")),
        headers(("Linerate-Locked" = u64,
            description = "How many links are exported as disabled for want of their password")))))]
pub(in crate::admin) async fn export(
    request: HttpRequest,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let ExportParameters { format, hashes, domain } = query::parse(&request)?;
    if hashes && auth::granted(&request)?.scope != Scope::Write {
        return Err(auth::insufficient());
    }
    let of = domains::several(&request, &state, domain.as_deref())?;
    let name = match format {
        Format::Csv => "attachment; filename=\"links.csv\"",
        Format::Json => "attachment; filename=\"links.json\"",
    };
    let mut response = uncached(HttpResponse::Ok());
    response.insert_header((header::CONTENT_TYPE, format.media_type()));
    response.insert_header((header::CONTENT_DISPOSITION, name));
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let permit = permit(&state)?;
    let with_domains = !state.store.domains().is_empty();
    let store = state.store.clone();
    let opened = spawn_blocking(carrying(move || {
        let reader = store.reader()?;
        let locked = if hashes { 0 } else { reader.locked(&of)? };
        Ok::<_, Error>((reader, of, locked))
    }));
    let (reader, of, locked) = opened.await.map_err(|_| Error::Closed)??;
    response.insert_header((LOCKED, locked));
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let runtime = Handle::current();
    spawn_blocking(carrying(move || {
        let _permit = permit;
        let mut output = Chunks { sender, runtime, chunk: BytesMut::with_capacity(CHUNK_BYTES) };
        let ended = Writer::new(format, with_domains, &mut output).and_then(|mut writer| {
            let mut written = Ok(());
            let walked = reader.export(&of, hashes, &mut |record| {
                written = writer.write(&record);
                written.is_ok()
            });
            written?;
            walked.map_err(io::Error::other)?;
            writer.finish()?.send()
        });
        // The client sees a truncated answer, and cannot mistake it for a complete file.
        if let Err(error) = ended {
            tracing::warn!(%error, "an export broke off");
            output.give(Err(error)).ok();
        }
    }));
    let ended = Box::pin(async move { key_ended(&request).await });
    // An error is the last piece.
    let pieces = stream::unfold(Some((receiver, ended)), |left| async move {
        let (mut receiver, mut ended) = left?;
        tokio::select! {
            biased;
            failure = &mut ended => Some((Err(io::Error::other(failure.to_string())), None)),
            piece = receiver.recv() => Some((piece?, Some((receiver, ended)))),
        }
    });
    Ok(response.streaming(pieces))
}

/// The blocking thread's end of an export.
struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    chunk: BytesMut,
}

impl Chunks {
    fn send(&mut self) -> io::Result<()> {
        let chunk = self.chunk.split().freeze();
        self.chunk.reserve(CHUNK_BYTES);
        self.give(Ok(chunk))
    }

    /// Waits until the client has room, but no longer than [`STALLED`], since a stalled client would keep the thread.
    fn give(&self, chunk: io::Result<Bytes>) -> io::Result<()> {
        match self.runtime.block_on(timeout(STALLED, self.sender.send(chunk))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for &mut Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Parameters of an import.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ImportParameters {
    /// The format of the links. By default the media type decides.
    #[param(inline)]
    format: Option<Format>,
    /// What to do if a code is taken.
    #[param(inline)]
    #[serde(default)]
    on_conflict: OnConflict,
    /// The domain of rows that name none; the default one if absent.
    domain: Option<String>,
}

/// Import links
///
/// Accepts a stream of any length, in transactions of 20,000 rows. CSV needs a header that names the fields; JSON is an
/// array, or one object per line. Refused rows are counted and do not stop the import. If the input cannot be read
/// further, the import ends with a problem whose `tally` says what was stored before.
#[utoipa::path(post, path = "/api/v1/links/import", tag = "bulk", operation_id = "importLinks",
    params(ImportParameters), security(("bearer" = ["write"])),
    request_body(content((String = "text/csv"), (Vec<crate::store::Record> = "application/json"),
        (String = "application/x-ndjson"))),
    responses((status = 200, description = "What became of the rows; numbered from 1, the header not counted",
        body = Tally)))]
pub(in crate::admin) async fn import(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let ImportParameters { format, on_conflict, domain } = query::parse(&request)?;
    let grant = auth::granted(&request)?;
    if domain.is_some() {
        domains::one(&grant, &state, domain.as_deref())?;
    }
    let media_type = body::media_type(&request, &["text/csv", "application/json", "application/x-ndjson"])?;
    let implied = if media_type == "text/csv" { Format::Csv } else { Format::Json };
    if format.is_some_and(|format| format != implied) {
        return Err(query::refuse("format", &format!("does not go with {media_type}")));
    }
    let permit = permit(&state)?;
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let store = state.store.clone();
    let is_over = Arc::<AtomicBool>::default();
    let over = Arc::clone(&is_over);
    let mut imported = spawn_blocking(carrying(move || {
        let _permit = permit;
        let input = Upload { receiver, chunk: Bytes::new(), ended: false };
        let how = ImportOptions { on_conflict, domain, within: grant.domains, is_over: over };
        transfer::import(implied, input, &store, &how, &mut |_| {})
    }));
    let done = async {
        let fed = feed(&request, payload, &sender).await;
        is_over.store(fed.is_err(), Ordering::Relaxed);
        drop(sender);
        (fed, (&mut imported).await)
    };
    let refused = async {
        let failure = key_ended(&request).await;
        is_over.store(true, Ordering::Relaxed);
        failure
    };
    let (fed, imported) = tokio::select! {
        biased;
        failure = refused => (Err(failure), imported.await),
        done = done => done,
    };
    let imported = imported.map_err(|_| Error::Closed)?;
    // If the import broke off, this counts what was stored before.
    let tally = imported.as_ref().unwrap_or_else(|error| &error.tally);
    if tally.created + tally.replaced > 0 {
        let count = tally.created + tally.replaced;
        Audit::of(&request, &state).wrote_many("links.import", count).await;
    }
    fed.map_err(|failure| failure.with_tally(tally))?;
    Ok(uncached(HttpResponse::Ok()).json(imported?))
}

/// Waits until the request's key is no longer valid, which is checked once a second. Returns the refusal.
async fn key_ended(request: &HttpRequest) -> Failure {
    loop {
        sleep(body::AT_ONCE).await;
        // A look-up that fails says nothing of the key.
        if let Err(failure) = auth::still(request).await
            && failure.is_refusal()
        {
            return failure;
        }
    }
}

/// Passes the body on, chunk by chunk. An empty chunk marks its end. If the channel closes without one, the client has
/// left, and its incomplete last row must not be taken for a complete one.
///
/// # Errors
/// When the request's key is no longer valid at the end.
async fn feed(
    request: &HttpRequest,
    mut payload: web::Payload,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut received = begun;
    loop {
        let chunk = tokio::select! {
            biased;
            chunk = payload.next() => chunk,
            () = sender.closed() => return Ok(()),
            () = sleep_until(received + STALLED) => Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())),
        };
        received = Instant::now();
        if chunk.is_none()
            && received > begun + body::AT_ONCE
            && let Err(failure) = auth::still(request).await
            && failure.is_refusal()
        {
            return Err(failure);
        }
        let (chunk, last) = match chunk {
            Some(Ok(chunk)) if chunk.is_empty() => continue,
            Some(Ok(chunk)) => (Ok(chunk), false),
            Some(Err(error)) => (Err(broken(error)), true),
            None => (Ok(Bytes::new()), true),
        };
        if sender.send(chunk).await.is_err() || last {
            return Ok(());
        }
        // The client is not to blame for the time that the thread took.
        received = Instant::now();
    }
}

fn broken(error: actix_web::error::PayloadError) -> io::Error {
    match error {
        actix_web::error::PayloadError::Io(error) => error,
        error => io::Error::new(io::ErrorKind::UnexpectedEof, error.to_string()),
    }
}

/// The blocking thread's end of an import.
struct Upload {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
    ended: bool,
}

impl Read for Upload {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() && !self.ended {
            self.chunk = self.receiver.blocking_recv().unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))?;
            self.ended = self.chunk.is_empty();
        }
        let count = buffer.len().min(self.chunk.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

impl From<ImportError> for Failure {
    fn from(ImportError { cause, tally }: ImportError) -> Self {
        let failure: Self = match cause {
            Cause::Store(error) => error.into(),
            Cause::Read(ReadError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                Problem::new(408, "the body stood still for too long").into()
            }
            Cause::Read(ReadError::Io(error)) => {
                Problem::bad_request(format!("the body broke off: {error}")).into()
            }
            Cause::Read(error) => Problem::bad_request(error.to_string()).into(),
        };
        failure.with_tally(&tally)
    }
}

fn permit(state: &State) -> Result<OwnedSemaphorePermit, Failure> {
    let permit = state.transfers.clone().try_acquire_owned();
    permit.map_err(|_| Failure::busy("other imports or exports are running"))
}
