//! Keys of the API. Managing keys requires a key that may write everything; it can grant at most its own rights.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use service::problem::Problem;
use utoipa::ToSchema;

use super::body;
use crate::admin::audit::{self, Audit, Written};
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::respond::uncached;
use crate::admin::{State, auth};
use crate::domains::{DEFAULT, DomainId, InDomains};
use crate::store::{Error, Grant, NewToken, Scope, TokenInfo};
use crate::when::{self, Timestamp};

/// What a client sends to create a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    /// Its purpose: 1 to 100 printable characters.
    name: String,
    /// Its rights; `write` includes `read`.
    scope: Scope,
    /// The domains that it is for; `default` is the one without a name. All if absent.
    #[serde(default)]
    domains: Option<Vec<String>>,
    /// When it expires: RFC 3339, a date, or a span from now such as `90d`. If absent, it expires with the key that
    /// creates it, if that one does.
    #[serde(default, deserialize_with = "when::deserialize")]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Timestamp>,
}

/// A new key.
#[derive(Serialize, ToSchema)]
struct CreatedKey {
    /// The key itself. It is shown only here, since the database has only its hash.
    key: String,
    #[serde(flatten)]
    info: TokenInfo,
}

/// A list of keys.
#[derive(Serialize, ToSchema)]
struct KeyList {
    /// Sorted by id.
    keys: Vec<TokenInfo>,
}

/// The client's identity.
#[derive(Serialize, ToSchema)]
struct Whoami {
    /// The key's id; absent for an issuer's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    /// The name of the key, or of the token's bearer.
    name: String,
    /// Its rights.
    scope: Scope,
    /// The domains that it is for; absent if for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    domains: Option<Vec<String>>,
    /// When it expires; absent if it never does, or if the issuer's token says when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// Show the client's identity
///
/// What this request's key allows. Managing keys and domains requires the scope `write` for all domains.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "keys", operation_id = "whoami",
    security(("bearer" = ["read"])),
    responses((status = 200, description = "What the key allows", body = Whoami)))]
pub(in crate::admin) async fn whoami(
    request: HttpRequest,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let Grant { id, name, scope, domains, expires_at, .. } = auth::granted(&request)?;
    let known = state.store.domains();
    let host = |id| match id {
        DomainId::DEFAULT => Some(DEFAULT.to_owned()),
        id => known.get(id).map(|domain| domain.host.clone()),
    };
    let domains = match domains {
        InDomains::All => None,
        InDomains::Only(domains) => Some(domains.into_iter().filter_map(host).collect()),
    };
    Ok(uncached(HttpResponse::Ok()).json(Whoami { id, name, scope, domains, expires_at }))
}

/// List keys
///
/// Requires a key for all domains, as does everything about keys. There are at most 1,000.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", operation_id = "listKeys",
    security(("bearer" = ["write"])),
    responses((status = 200, description = "The keys, without their secrets", body = KeyList)))]
pub(in crate::admin) async fn list(
    request: HttpRequest,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    let keys = state.readers.with(|reader| reader.tokens()).await?;
    Ok(uncached(HttpResponse::Ok()).json(KeyList { keys }))
}

/// Create a key
///
/// The answer contains the key itself, only this once. It cannot be requested again, not even with an
/// `Idempotency-Key`; revoke a key that you lost. A key that expires creates only keys that expire no later.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", operation_id = "createKey",
    request_body = NewKey, security(("bearer" = ["write"])),
    responses((status = 201, description = "Created", body = CreatedKey, headers(("Location" = String)))))]
pub(in crate::admin) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    let (NewKey { name, scope, domains, expires_at }, _room) =
        body::json(&request, payload, body::ONE).await?;
    let domains = domains.map(|domains| ids(&state, &domains)).transpose()?;
    let expires_at = no_later(expires_at, auth::granted(&request)?.expires_at)?;
    let (info, key) = state.store.create_token_as(NewToken { name, scope, domains, expires_at }).await?;
    let after = Some(audit::digest_of_key(&info));
    let written = Written { target: info.id.to_string(), before: None, after };
    Audit::of(&request, &state).wrote("key.create", &[written]).await;
    let mut response = HttpResponse::Created();
    response.insert_header((header::LOCATION, format!("/api/v1/keys/{}", info.id)));
    Ok(uncached(response).json(CreatedKey { key, info }))
}

/// Read a key
#[utoipa::path(get, path = "/api/v1/keys/{id}", tag = "keys", operation_id = "readKey",
    params(("id" = i64, Path)), security(("bearer" = ["write"])),
    responses((status = 200, description = "The key, without its secret", body = TokenInfo)))]
pub(in crate::admin) async fn read(
    request: HttpRequest,
    id: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    Ok(uncached(HttpResponse::Ok()).json(known(&state, &id).await?))
}

/// Revoke a key
///
/// It ends at once. A key cannot revoke itself, so that there is always one left.
#[utoipa::path(delete, path = "/api/v1/keys/{id}", tag = "keys", operation_id = "revokeKey",
    params(("id" = i64, Path)), security(("bearer" = ["write"])),
    responses(
        (status = 204, description = "Revoked"),
        (status = 409, description = "It is the key that asks", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(in crate::admin) async fn revoke(
    request: HttpRequest,
    id: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    let key = known(&state, &id).await?;
    if auth::granted(&request)?.id == Some(key.id) {
        return Err(Problem::conflict("a key does not revoke itself; ask by another one").into());
    }
    state.store.revoke_token(key.id).await?;
    let before = Some(audit::digest_of_key(&key));
    let written = Written { target: key.id.to_string(), before, after: None };
    Audit::of(&request, &state).wrote("key.revoke", &[written]).await;
    Ok(HttpResponse::NoContent().finish())
}

/// The key of this id.
async fn known(state: &State, id: &str) -> Result<TokenInfo, Failure> {
    let missing = || Failure::from(Problem::not_found("there is no such key"));
    let id: i64 = id.parse().map_err(|_| missing())?;
    let keys = state.readers.with(|reader| reader.tokens()).await?;
    keys.into_iter().find(|key| key.id == id).ok_or_else(|| Error::NoToken(id).into())
}

/// The ids of a new key's domains.
fn ids(state: &State, names: &[String]) -> Result<Vec<DomainId>, Failure> {
    if names.is_empty() {
        let problem = Problem::unprocessable("a field is wrong");
        return Err(problem
            .with_error("/domains", "a key without a domain is for nothing; left out it is for all")
            .into());
    }
    let known = state.store.domains();
    let mut ids = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let id = known.id(Some(name)).map_err(|error| {
            Problem::unprocessable("a field is wrong")
                .with_error(format!("/domains/{index}"), Error::from(error).to_string())
        })?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The expiry of a new key. `own` is the expiry of the key that creates it, which the new key may not outlive.
fn no_later(wanted: Option<Timestamp>, own: Option<Timestamp>) -> Result<Option<Timestamp>, Failure> {
    match (wanted, own) {
        (Some(wanted), Some(own)) if wanted > own => Err(Problem::unprocessable("a field is wrong")
            .with_error("/expires_at", format!("the key that makes it ends before, at {own}"))
            .into()),
        (wanted, own) => Ok(wanted.or(own)),
    }
}
