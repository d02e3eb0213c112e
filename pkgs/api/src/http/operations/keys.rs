//! API keys, for clients that may write. A key can create only keys with at most its own rights.

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Deserializer, Serialize};
use service::problem::Problem;
use utoipa::ToSchema;

use crate::http::Api;
use crate::http::access::guard::{Caller, revoked};
use crate::http::audit::{Audit, Written};
use crate::http::failure::Failure;
use crate::http::request::body::One;
use crate::http::response::respond::json;
use crate::keys::{KeyInfo, Secret, end};
use crate::store::{Key, NewKey, Scope};

/// The most keys that can be created here, since all are in memory.
const MOST: usize = 1_000;

/// The longest name, in characters.
const NAME: usize = 100;

/// The default rate, in requests per second.
const RATE: u32 = 100;

/// The most of an error's text that is shown, in bytes.
const DETAIL_BYTES: usize = 256;

/// An API key to create
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct KeyToCreate {
    /// The key's name: printable characters
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// Its rights; `write` includes `read`
    #[schema(value_type = String, pattern = "^(read|write)$")]
    scope: ScopeName,
    /// Requests per second in the long run; 0 or null for no limit. Default: 100, or the rate of the key that creates
    /// it, if lower
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    rate: Option<Option<u32>>,
    /// Requests at once. Default: as many as one second's
    #[serde(default)]
    #[schema(minimum = 1)]
    burst: Option<u32>,
    /// When it expires: RFC 3339, or a span from now such as `90d`. By default it expires with the key that creates it,
    /// if that one does
    #[serde(default)]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// The rights of a key.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum ScopeName {
    Read,
    Write,
}

/// A field with null is `Some(None)`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A new API key
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct CreatedKey {
    /// The key itself. It is shown only here, since the database has only its digest
    key: String,
    #[serde(flatten)]
    info: KeyInfo,
}

/// API keys
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct KeyList {
    keys: Vec<KeyInfo>,
}

/// The key's id in a path.
pub(in crate::http) struct KeyId(i64);

impl FromRequestParts<Api> for KeyId {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        let last = parts.uri.path().rsplit('/').next().unwrap_or_default();
        last.parse().map(Self).map_err(|_| missing())
    }
}

/// List API keys
///
/// Oldest first, without secrets.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", operation_id = "listKeys",
    responses((status = 200, description = "The keys", body = KeyList)))]
pub(in crate::http) async fn list(caller: Caller, State(api): State<Api>) -> Result<Response, Failure> {
    let keys = all(&caller, &api).await?.into_iter().map(KeyInfo::from).collect();
    answer(StatusCode::OK, &KeyList { keys })
}

/// Create an API key
///
/// The answer contains the key itself, only this once. It cannot be requested again, not even with an
/// `Idempotency-Key`; revoke a key that you lost. A key creates only keys that expire no later, and have no higher
/// rate, than itself.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", operation_id = "createKey",
    request_body = KeyToCreate,
    responses((status = 201, description = "The key", body = CreatedKey,
               headers(("Location" = String, description = "Where it is")))))]
pub(in crate::http) async fn create(
    caller: Caller,
    State(api): State<Api>,
    audit: Audit,
    One(body): One,
) -> Result<Response, Failure> {
    let keys = all(&caller, &api).await?;
    let own = match caller.key() {
        // It may have been revoked since the request began. What it may create is then unknown.
        Some(id) if id >= 0 => Some(keys.iter().find(|key| key.id == id).ok_or_else(revoked)?),
        _ => None,
    };
    let secret = Secret::generate().map_err(|error| Problem::internal(error.to_string()))?;
    let new = checked(parsed(&body)?, own, secret.digest())?;
    if keys.len() >= MOST {
        return Err(wrong("/name", format!("there are {MOST} keys already; revoke some")));
    }
    audit.begin();
    let info = KeyInfo::from(api.users().add_key(new).await?);
    audit.wrote("key.create", || [Written::key(info.id, None, Some(&info))]).await;
    let location = format!("/v1/keys/{}", info.id);
    let mut response = answer(StatusCode::CREATED, &CreatedKey { key: secret.expose().to_owned(), info })?;
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Read an API key
#[utoipa::path(get, path = "/v1/keys/{id}", tag = "keys", operation_id = "getKey",
    params(("id" = i64, Path)),
    responses((status = 200, description = "The key, without its secret", body = KeyInfo)))]
pub(in crate::http) async fn get(
    caller: Caller,
    State(api): State<Api>,
    KeyId(id): KeyId,
) -> Result<Response, Failure> {
    answer(StatusCode::OK, &one(&caller, &api, id).await?)
}

/// Revoke an API key
///
/// It ends at once. A key cannot revoke itself, so that there is always one left.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", operation_id = "revokeKey",
    params(("id" = i64, Path)),
    responses((status = 204, description = "It is revoked"),
              (status = 409, description = "It is the key that asks", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http) async fn revoke(
    caller: Caller,
    State(api): State<Api>,
    KeyId(id): KeyId,
    audit: Audit,
) -> Result<StatusCode, Failure> {
    let key = one(&caller, &api, id).await?;
    if caller.key() == Some(id) {
        return Err(Problem::conflict("a key does not revoke itself; ask by another one").into());
    }
    audit.begin();
    if !api.users().revoke_key(id).await? {
        return Err(missing());
    }
    audit.wrote("key.revoke", || [Written::key(id, Some(&key), None)]).await;
    Ok(StatusCode::NO_CONTENT)
}

/// All keys, for a client with a key. If no keys are required, anybody could otherwise create keys that remain valid
/// once keys are required.
async fn all(caller: &Caller, api: &Api) -> Result<Vec<Key>, Failure> {
    match caller {
        Caller::Key(..) => Ok(api.users().list_keys().await?),
        _ => Err(Problem::forbidden(
            "this service asks for no keys, so it makes none here; `linerate-api key add` does",
        )
        .into()),
    }
}

async fn one(caller: &Caller, api: &Api, id: i64) -> Result<KeyInfo, Failure> {
    let keys = all(caller, api).await?;
    keys.into_iter().find(|key| key.id == id).map(KeyInfo::from).ok_or_else(missing)
}

/// Parses a body.
///
/// # Errors
/// 400 for invalid JSON, 422 for JSON of the wrong form.
fn parsed(body: &[u8]) -> Result<KeyToCreate, Failure> {
    let mut input = serde_json::Deserializer::from_slice(body);
    let short = |error: &serde_json::Error| {
        let mut detail = error.to_string();
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES));
        detail
    };
    let key = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let detail = short(error.inner());
        match error.inner().classify() {
            // The pointer of an unknown field is the field itself. A missing field has no pointer.
            serde_json::error::Category::Data => {
                let path = error.path().to_string();
                let pointer = if path == "." || path.len() > DETAIL_BYTES {
                    String::new()
                } else {
                    format!("/{}", path.replace('~', "~0").replace('/', "~1"))
                };
                wrong(&pointer, detail)
            }
            _ => Problem::bad_request(format!("the body is not JSON: {detail}")).into(),
        }
    })?;
    let end = input.end().map_err(|error| short(&error));
    end.map_err(|detail| Problem::bad_request(format!("the body is not JSON: {detail}")))?;
    Ok(key)
}

/// The new key, if it has at most the rights of the key that creates it.
fn checked(key: KeyToCreate, own: Option<&Key>, digest: [u8; 32]) -> Result<NewKey, Failure> {
    let name = key.name.trim().to_owned();
    if name.is_empty() || name.chars().count() > NAME || name.chars().any(char::is_control) {
        return Err(wrong("/name", format!("1 to {NAME} printable characters")));
    }
    let most = own.and_then(|own| own.rate);
    let rate = match (key.rate, most) {
        (None, most) => Some(most.map_or(RATE, |most| most.min(RATE))),
        (Some(rate), most) => match (rate.filter(|rate| *rate > 0), most) {
            (rate, Some(most)) if rate.is_none_or(|rate| rate > most) => {
                return Err(wrong("/rate", format!("the key that makes it has {most} a second itself")));
            }
            (rate, _) => rate,
        },
    };
    // Without a rate there is no limit to inherit.
    let most = most.map(|rate| own.and_then(|own| own.burst).unwrap_or(rate));
    let burst = match (key.burst, most) {
        (Some(0), _) => return Err(wrong("/burst", "at least 1".to_owned())),
        (Some(burst), Some(most)) if burst > most => {
            return Err(wrong("/burst", format!("the key that makes it has {most} at once itself")));
        }
        (None, Some(most)) => rate.map(|rate| rate.min(most)),
        (burst, _) => burst,
    };
    let wanted = key.expires_at.map(|text| end(&text)).transpose();
    let wanted = wanted.map_err(|error| wrong("/expires_at", error.to_string()))?;
    let expires_at = match (wanted, own.and_then(|own| own.expires_at)) {
        (Some(wanted), Some(own)) if wanted > own => {
            return Err(wrong("/expires_at", format!("the key that makes it ends before, at {own}")));
        }
        (wanted, own) => wanted.or(own),
    };
    let scope = match key.scope {
        ScopeName::Read => Scope::Read,
        ScopeName::Write => Scope::Write,
    };
    Ok(NewKey { name, digest, scope, rate, burst, expires_at })
}

fn wrong(pointer: &str, detail: String) -> Failure {
    Problem::unprocessable("1 part of the body is wrong").with_error(pointer, detail).into()
}

fn missing() -> Failure {
    Problem::not_found("there is no such key").into()
}

/// An answer that is not cached.
fn answer(status: StatusCode, body: &impl Serialize) -> Result<Response, Failure> {
    let body = serde_json::to_vec(body).map_err(|error| Problem::internal(error.to_string()))?;
    let no_store: HeaderMap =
        [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))].into_iter().collect();
    Ok((no_store, json(status, body)).into_response())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::store::LastUse;

    /// A body, and the rights of the key that sends it.
    fn made(body: &str, rate: Option<u32>, burst: Option<u32>, ends: Option<&str>) -> Result<NewKey, String> {
        let own = Key {
            id: 1,
            digest: [0; 32],
            name: String::new(),
            scope: Scope::Write,
            rate,
            burst,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: ends.map(|end| end.parse().expect("an instant")),
            last_use: LastUse::never(),
        };
        let made = parsed(body.as_bytes()).and_then(|key| checked(key, Some(&own), [1; 32]));
        made.map_err(|failure| {
            failure.problem().errors.first().map_or(String::new(), |fault| fault.pointer.clone())
        })
    }

    #[test]
    fn a_key_may_no_more_than_the_one_that_makes_it() {
        let body = |more: &str| format!(r#"{{"name":"n","scope":"read"{more}}}"#);
        let rates =
            |more: &str, rate, burst| made(&body(more), rate, burst, None).map(|key| (key.rate, key.burst));
        for (more, rate, burst, expected) in [
            ("", None, None, Ok((Some(100), None))),
            ("", Some(5), None, Ok((Some(5), Some(5)))),
            ("", Some(5), Some(2), Ok((Some(5), Some(2)))),
            ("", Some(500), Some(1000), Ok((Some(100), Some(100)))),
            (r#","rate":0"#, None, None, Ok((None, None))),
            (r#","rate":null"#, None, None, Ok((None, None))),
            (r#","rate":0"#, Some(5), None, Err("/rate")),
            (r#","rate":null"#, Some(5), None, Err("/rate")),
            (r#","rate":6"#, Some(5), None, Err("/rate")),
            (r#","rate":5,"burst":6"#, Some(5), None, Err("/burst")),
            (r#","rate":5,"burst":6"#, Some(5), Some(6), Ok((Some(5), Some(6)))),
            (r#","burst":0"#, None, None, Err("/burst")),
        ] {
            assert_eq!(
                rates(more, rate, burst),
                expected.map_err(str::to_owned),
                "{more} of {rate:?} {burst:?}"
            );
        }
        let end = Some("2130-01-31T00:00:00Z");
        let ends = |more: &str| {
            made(&body(more), None, None, end).map(|key| key.expires_at.map(|at| at.to_string()))
        };
        assert_eq!(ends(""), Ok(end.map(str::to_owned)));
        assert_eq!(ends(r#","expires_at":"2130-01-31T00:00:01Z""#), Err("/expires_at".to_owned()));
        let sooner = "2130-01-30T00:00:00Z".to_owned();
        assert_eq!(ends(r#","expires_at":"2130-01-30T00:00:00Z""#), Ok(Some(sooner)));
    }
}
