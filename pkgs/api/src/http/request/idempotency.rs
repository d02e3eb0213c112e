//! Requests that are executed once, however often they are sent (draft-ietf-httpapi-idempotency-key-header-07).

use axum::response::Response;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use service::problem::Problem;
use sha2::{Digest, Sha256};

use crate::http::access::guard::Caller;
use crate::http::failure::Failure;
use crate::store::{Created, IdempotencyRecord};
use crate::user::Record;

/// The longest `Idempotency-Key`, in characters.
const KEY_CHARS: usize = 255;

/// Marks the answer to a repeated request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Marks an answer as a repetition.
pub(in crate::http) fn mark(response: &mut Response, replayed: bool) {
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
}

/// The created users, and whether they were created before.
pub(in crate::http) fn created(
    created: Created,
    pointer: impl FnOnce(usize) -> String,
) -> Result<(Vec<Record>, bool), Failure> {
    match created {
        Created::Done(records) => Ok((records, false)),
        Created::Before(records) => Ok((records, true)),
        // The request was executed and is not repeated. Its answer belonged to a user who was deleted.
        Created::Erased => Err(Problem::conflict(
            "the request was made before, and a user that it created has been deleted since, and its answer too",
        )
        .into()),
        // draft-ietf-httpapi-idempotency-key-header-07, section 2.7.
        Created::KeyReused => {
            Err(Problem::unprocessable("the Idempotency-Key was used for another request").into())
        }
        Created::EmailTaken(index) => Err(Failure::email_taken(pointer(index))),
    }
}

/// The record of an `Idempotency-Key`: a string as in RFC 9651, also accepted without its quotes.
///
/// # Errors
/// 400 for a malformed one.
pub(in crate::http) fn record(
    head: &HeaderMap,
    caller: &Caller,
    path: &str,
    body: &Bytes,
) -> Result<Option<IdempotencyRecord>, Failure> {
    let mut values = head.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let key = text.map(|text| text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text));
    let valid = |key: &&str| {
        matches!(key.len(), 1..=KEY_CHARS) && key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
    };
    let Some(key) = key.filter(valid) else {
        return Err(Problem::bad_request("Idempotency-Key must be 1 to 255 visible ASCII characters").into());
    };
    let mut digest = Sha256::new();
    digest.update(Method::POST.as_str());
    digest.update([0]);
    digest.update(path);
    digest.update([0]);
    digest.update(body);
    Ok(Some(IdempotencyRecord { owner: caller.key(), key: key.to_owned(), digest: digest.finalize().into() }))
}
