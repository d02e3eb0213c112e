//! Request bodies: limited in size and time. Errors point to the faulty part.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header;
use actix_web::{HttpRequest, web};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use service::problem::Problem;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::admin::protocol::failure::Failure;
use crate::admin::{State, auth};

/// The most bytes one link may take.
pub(super) const ONE: usize = 64 * 1024;

/// The most bytes a domain may take. Its page may be longer in escaped form.
pub(super) const DOMAIN: usize = 512 * 1024;

/// The most bytes a batch may take.
pub(super) const BATCH: usize = 8 * 1024 * 1024;

/// How long a body may take before the request's key is checked again.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);

/// The most of an error's text that is shown, in bytes.
const DETAIL_BYTES: usize = 256;

/// Room in memory for a body. It is kept until the request is answered, since what is made of the body is as large, and
/// waits for threads and for the writer.
pub(super) struct Room(OwnedSemaphorePermit);

impl Room {
    fn new(state: &State, bytes: u64) -> Result<Self, Failure> {
        let room = Arc::clone(&state.bodies).try_acquire_many_owned(kib(bytes));
        room.map(Self).map_err(|_| busy())
    }

    /// Makes it at least this many bytes, for a body of which more is made than was sent.
    ///
    /// # Errors
    /// 503 if there is too little room left.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        let more = kib(bytes as u64).saturating_sub(self.kib());
        let more = Arc::clone(self.0.semaphore()).try_acquire_many_owned(more).map_err(|_| busy())?;
        self.0.merge(more);
        Ok(())
    }

    /// Makes it at most this many bytes.
    fn shrink(&mut self, bytes: usize) {
        let excess = self.kib().saturating_sub(kib(bytes as u64));
        drop(self.0.split(excess as usize));
    }

    fn kib(&self) -> u32 {
        self.0.num_permits() as u32
    }
}

/// Permits for this many bytes.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn busy() -> Failure {
    Failure::busy("too many request bodies are under way")
}

/// Reads a JSON body of at most `limit` bytes.
pub(super) async fn json<T: DeserializeOwned>(
    request: &HttpRequest,
    payload: web::Payload,
    limit: usize,
) -> Result<(T, Room), Failure> {
    media_type(request, &["application/json"])?;
    let (body, room) = bytes(request, payload, limit).await?;
    Ok((parse(&body)?, room))
}

/// Reads a JSON body of at most [`ONE`] bytes. Also returns its bytes as sent.
pub(super) async fn json_as_sent<T: DeserializeOwned>(
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<(T, Vec<u8>, Room), Failure> {
    media_type(request, &["application/json"])?;
    let (body, room) = bytes(request, payload, ONE).await?;
    Ok((parse(&body)?, body, room))
}

/// Reads a merge patch (RFC 7396) of at most `limit` bytes.
pub(super) async fn merge_patch<T: DeserializeOwned>(
    request: &HttpRequest,
    payload: web::Payload,
    limit: usize,
) -> Result<(T, Room), Failure> {
    media_type(request, &["application/merge-patch+json", "application/json"])?;
    let (body, room) = bytes(request, payload, limit).await?;
    Ok((parse(&body)?, room))
}

/// The body's media type, if it is one of these, in lower case and without parameters.
pub(super) fn media_type<'a>(request: &HttpRequest, accepted: &[&'a str]) -> Result<&'a str, Failure> {
    let unsupported = |detail: String| Failure::from(Problem::new(415, detail));
    if request.headers().get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(unsupported("the body must not be compressed".to_owned()));
    }
    let given = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    accepted
        .iter()
        .copied()
        .find(|accepted| accepted.eq_ignore_ascii_case(essence))
        .ok_or_else(|| unsupported(format!("the body's media type must be {}", accepted.join(" or "))))
}

async fn bytes(
    request: &HttpRequest,
    mut payload: web::Payload,
    limit: usize,
) -> Result<(Vec<u8>, Room), Failure> {
    let too_large = || Failure::from(Problem::too_large(format!("the body has more than {limit} bytes")));
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let state = request
        .app_data::<web::Data<State>>()
        .ok_or_else(|| Problem::internal("the listener has no state"))?;
    let mut room = Room::new(state, announced.unwrap_or(limit as u64))?;
    let gather = async {
        let mut body = Vec::new();
        while let Some(chunk) = payload.next().await {
            let chunk =
                chunk.map_err(|error| Problem::bad_request(format!("the body broke off: {error}")))?;
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let begun = Instant::now();
    let gathered = timeout(state.timeouts.body, gather).await;
    let body = gathered.unwrap_or_else(|_| Err(Problem::new(408, "the body took too long").into()))?;
    if begun.elapsed() > AT_ONCE {
        auth::still(request).await?;
    }
    room.shrink(body.len());
    Ok((body, room))
}

/// 400 for invalid JSON, 422 for JSON of the wrong form.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    let mut input = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let detail = short(error.inner().to_string());
        match error.inner().classify() {
            serde_json::error::Category::Data => {
                Problem::unprocessable("the body does not fit").with_error(pointer(error.path()), detail)
            }
            _ => not_json(&detail),
        }
    })?;
    input.end().map_err(|error| not_json(&short(error.to_string())))?;
    Ok(value)
}

/// Shortens an error's text, since it contains the client's data of any length.
fn short(mut detail: String) -> String {
    if detail.len() > DETAIL_BYTES {
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES));
        detail.push('…');
    }
    detail
}

fn not_json(detail: &str) -> Problem {
    Problem::bad_request(format!("the body is not JSON: {detail}"))
}

/// A path as a JSON pointer (RFC 6901), cut if it is long, since it contains names from the client.
fn pointer(path: &serde_path_to_error::Path) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { variant } => format!("/{variant}"),
        Segment::Unknown => String::new(),
    };
    let mut pointer = String::new();
    for segment in path.iter().map(segment) {
        if pointer.len() + segment.len() > DETAIL_BYTES {
            break;
        }
        pointer.push_str(&segment);
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::NewLink;

    #[test]
    fn a_long_value_is_not_sent_back() {
        for body in [format!("\"{}\"", "é".repeat(1 << 20)), format!("{{\"{}\":1}}", "x".repeat(1 << 20))] {
            let problem = parse::<NewLink>(body.as_bytes()).err().map(Failure::into_problem);
            let problem = serde_json::to_string(&problem).expect("JSON");
            assert!(problem.contains('…') && problem.len() < 1024, "{} bytes", problem.len());
        }
    }

    #[test]
    fn what_does_not_fit_is_pointed_at() {
        for (body, status, at) in [
            (r#"{"target":"t"}"#, 200, ""),
            (r#"{"target":1}"#, 422, "/target"),
            (r#"{"target":"t","tags":["a",2]}"#, 422, "/tags/1"),
            (r#"{"target":"t","redirect":200}"#, 422, "/redirect"),
            (r#"{"title":"t"}"#, 422, ""),
            (r#"{"target":"t""#, 400, ""),
            (r#"{"target":"t"} x"#, 400, ""),
            ("", 400, ""),
        ] {
            let problem = parse::<NewLink>(body.as_bytes()).err().map(Failure::into_problem);
            assert_eq!(problem.as_ref().map_or(200, |problem| problem.status), status, "{body}");
            let found = problem.and_then(|problem| problem.errors.into_iter().next());
            assert_eq!(found.map(|fault| fault.pointer).unwrap_or_default(), at, "{body}");
        }
    }
}
