//! Operations on a single user.

use std::time::Duration;

use axum::extract::{FromRequestParts, RawQuery, State};
use axum::response::Response;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use service::problem::Problem;

use crate::http::Api;
use crate::http::access::guard::Caller;
use crate::http::audit::{Audit, Written};
use crate::http::call::Call;
use crate::http::document::{draft, too_long, unwritable, validated};
use crate::http::failure::Failure;
use crate::http::openapi::{User, UserSelection};
use crate::http::request::body::{One, Patch};
use crate::http::request::conditions::{Conditions, Write, tag};
use crate::http::request::fields::Selection;
use crate::http::request::idempotency::{self, created, mark};
use crate::http::request::query::query;
use crate::http::response::respond::{found, json};
use crate::json::merge::merge;
use crate::store::{Deleted, Draft, Replaced};
use crate::user::{Document, Record, UserId, parse};

/// How often a patch is retried because the user changed meanwhile.
const ATTEMPTS: u32 = 8;

/// The id that the router found in a path.
pub(in crate::http) struct Id(UserId);

impl FromRequestParts<Api> for Id {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        Call::of(parts)?.id.map(Self).ok_or_else(Failure::no_user)
    }
}

/// The members of the answer.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Selected {
    /// The wanted members, separated by commas; by default all
    #[param(
        pattern = "^(id|version|created_at|updated_at|email|name|status|profile|addresses|tags|preferences)(,(id|version|created_at|updated_at|email|name|status|profile|addresses|tags|preferences)){0,31}$"
    )]
    fields: Option<String>,
}

/// Create a user
#[utoipa::path(post, path = "/v1/users", tag = "users", operation_id = "createUser",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = r#"^[\x21\x23-\x7e]{1,255}$"#,
            description = "Makes the request once, however often it is sent within a day; 1 GiB of answers are kept")),
    request_body = Document,
    responses((status = 201, description = "The user", body = User,
               headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version"),
                       ("Idempotency-Replayed" = Option<String>, description = "`true`: it was created before"))),
              (status = 409, description = "Another user has the email, or the user was created before by this Idempotency-Key and has been deleted", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http) async fn create(
    caller: Caller,
    State(api): State<Api>,
    audit: Audit,
    head: HeaderMap,
    One(body): One,
) -> Result<Response, Failure> {
    let record = idempotency::record(&head, &caller, "/v1/users", &body)?;
    let limits = api.settings().limits;
    let drafts = vec![draft(&parse::document(&body, &limits)?, &limits)?];
    audit.begin();
    let (records, replayed) = created(api.users().create(drafts, record).await?, |_| "/email".to_owned())?;
    let record = records.into_iter().next().ok_or_else(|| Problem::internal("nothing was created"))?;
    if !replayed {
        audit.wrote("user.create", || [Written::new(record.id, None, Some(&record))]).await;
    }
    let mut response = written(StatusCode::CREATED, &record);
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/users/{}", record.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    mark(&mut response, replayed);
    Ok(response)
}

/// Read a user
#[utoipa::path(get, path = "/v1/users/{id}", tag = "users", operation_id = "getUser",
    params(("id" = String, Path, format = "uuid"), Selected,
           ("If-None-Match" = Option<String>, Header, pattern = r#"^(\*|(W/)?"[0-9]{1,18}")$"#, description = "304 where the version is this")),
    responses((status = 200, description = "The user", body = UserSelection, headers(("ETag" = String, description = "Its version"))),
              (status = 304, description = "It is as the client has it")))]
pub(in crate::http) async fn get(
    State(api): State<Api>,
    Id(id): Id,
    RawQuery(query_text): RawQuery,
    head: HeaderMap,
) -> Result<Response, Failure> {
    let selected: Selected = query(query_text.as_deref())?;
    let selection = Selection::parse(selected.fields.as_deref(), api.settings().limits.unknown)?;
    let record = api.users().get(id).await?.ok_or_else(Failure::no_user)?;
    let record = Record { body: selection.of(&record.body), ..record };
    Ok(found(&head, &record)?.map(axum::body::Body::from))
}

/// Replace a user
#[utoipa::path(put, path = "/v1/users/{id}", tag = "users", operation_id = "replaceUser",
    params(("id" = String, Path, format = "uuid"),
           ("If-Match" = Option<String>, Header, pattern = r#"^(\*|"[0-9]{1,18}")$"#, description = "Only where the version is this")),
    request_body = Document,
    responses((status = 200, description = "The user as it is now", body = User, headers(("ETag" = String, description = "Its version")))))]
pub(in crate::http) async fn replace(
    State(api): State<Api>,
    Id(id): Id,
    audit: Audit,
    head: HeaderMap,
    One(body): One,
) -> Result<Response, Failure> {
    let limits = api.settings().limits;
    let document = parse::document(&body, &limits)?;
    let conditions = conditions(&api, &head)?;
    let named = named(&conditions);
    for _ in 0..ATTEMPTS {
        let before = before(&api, &audit, &conditions, id).await?;
        let at = named.or(before.as_ref().map(|before| before.version));
        let user = draft(&document, &limits)?;
        audit.begin();
        match api.users().replace(id, at, user).await? {
            Replaced::Done(record) => {
                let written_user = || [Written::new(id, before.as_ref(), Some(&record))];
                audit.wrote("user.replace", written_user).await;
                return Ok(written(StatusCode::OK, &record));
            }
            Replaced::Missing => return Err(Failure::no_user()),
            // Without a named version, only what was read before is outdated, and is read again.
            Replaced::Changed(_) if named.is_none() => {}
            Replaced::Changed(_) => return Err(Failure::precondition()),
            Replaced::EmailTaken => return Err(Failure::email_taken("/email".to_owned())),
        }
    }
    Err(changing())
}

/// Change a user
///
/// Applies a JSON Merge Patch (RFC 7396): null removes a member, objects are merged, and anything else replaces what
/// was there.
#[utoipa::path(patch, path = "/v1/users/{id}", tag = "users", operation_id = "patchUser",
    params(("id" = String, Path, format = "uuid"),
           ("If-Match" = Option<String>, Header, pattern = r#"^(\*|"[0-9]{1,18}")$"#, description = "Only where the version is this")),
    request_body(content = crate::http::openapi::UserPatch, content_type = "application/merge-patch+json"),
    responses((status = 200, description = "The user as it is now", body = User, headers(("ETag" = String, description = "Its version")))))]
pub(in crate::http) async fn patch(
    State(api): State<Api>,
    Id(id): Id,
    audit: Audit,
    head: HeaderMap,
    Patch(body): Patch,
) -> Result<Response, Failure> {
    let change = parse::patch(&body)?;
    let conditions = conditions(&api, &head)?;
    for attempt in 0..ATTEMPTS {
        let record = match attempt {
            0 => api.users().get(id).await?,
            // The cached version may have been outdated.
            _ => api.users().read(id).await?,
        };
        let record = record.ok_or_else(Failure::no_user)?;
        if !conditions.allow(record.version) {
            if attempt == 0 {
                continue;
            }
            return Err(Failure::precondition());
        }
        let user = patched(&record, change.clone(), &api)?;
        audit.begin();
        match api.users().replace(id, Some(record.version), user).await? {
            Replaced::Done(after) => {
                audit.wrote("user.patch", || [Written::new(id, Some(&record), Some(&after))]).await;
                return Ok(written(StatusCode::OK, &after));
            }
            Replaced::Missing => return Err(Failure::no_user()),
            Replaced::EmailTaken => return Err(Failure::email_taken("/email".to_owned())),
            // Writers that collided retry at different times.
            Replaced::Changed(_) => tokio::time::sleep(Duration::from_millis(attempt.into())).await,
        }
    }
    Err(changing())
}

/// Delete a user
#[utoipa::path(delete, path = "/v1/users/{id}", tag = "users", operation_id = "deleteUser",
    params(("id" = String, Path, format = "uuid"),
           ("If-Match" = Option<String>, Header, pattern = r#"^(\*|"[0-9]{1,18}")$"#, description = "Only where the version is this")),
    responses((status = 204, description = "It is gone")))]
pub(in crate::http) async fn delete(
    State(api): State<Api>,
    Id(id): Id,
    audit: Audit,
    head: HeaderMap,
) -> Result<StatusCode, Failure> {
    let conditions = conditions(&api, &head)?;
    let named = named(&conditions);
    for _ in 0..ATTEMPTS {
        let before = before(&api, &audit, &conditions, id).await?;
        let at = named.or(before.as_ref().map(|before| before.version));
        audit.begin();
        match api.users().delete(&[id], at).await? {
            Deleted::Done(ids) if ids.is_empty() => return Err(Failure::no_user()),
            Deleted::Done(_) => {
                audit.wrote("user.delete", || [Written::new(id, before.as_ref(), None)]).await;
                return Ok(StatusCode::NO_CONTENT);
            }
            Deleted::Changed(_) if named.is_none() => {}
            Deleted::Changed(_) => return Err(Failure::precondition()),
        }
    }
    Err(changing())
}

/// The user before a write that is logged, or that depends on the current version.
///
/// # Errors
/// 404 if there is none, 412 if a condition does not hold.
async fn before(
    api: &Api,
    audit: &Audit,
    conditions: &Conditions,
    id: UserId,
) -> Result<Option<Record>, Failure> {
    if !audit.is_on() && conditions.write() != Write::Depends {
        return Ok(None);
    }
    // The cached version may be outdated.
    let record = api.users().current(id).await?.ok_or_else(Failure::no_user)?;
    if conditions.allow(record.version) { Ok(Some(record)) } else { Err(Failure::precondition()) }
}

/// 409: other writes come in between each time.
fn changing() -> Failure {
    Problem::conflict("the user changes too often to be changed").into()
}

/// Check a user
///
/// Reads and checks a document as creating does, and answers what would be stored. Nothing is stored.
#[utoipa::path(post, path = "/v1/users:validate", tag = "users", operation_id = "validateUser",
    request_body = Document,
    responses((status = 200, description = "The document as it would be stored", body = Document)))]
pub(in crate::http) async fn validate(State(api): State<Api>, One(body): One) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, validated(&api, &body)?))
}

fn written(status: StatusCode, record: &Record) -> Response {
    let mut response = json(status, record.body.clone());
    response.headers_mut().insert(header::ETAG, tag(record.version));
    response
}

/// The conditions of a write; 428 if they are required and missing.
fn conditions(api: &Api, head: &HeaderMap) -> Result<Conditions, Failure> {
    let conditions = Conditions::of(head)?;
    if !conditions.names_version() && api.settings().conditional_writes {
        return Err(Problem::new(428, "If-Match has to say which version is meant, or * for any").into());
    }
    Ok(conditions)
}

/// The only version that a write may find, if the conditions say so.
fn named(conditions: &Conditions) -> Option<i64> {
    match conditions.write() {
        Write::At(version) => Some(version),
        Write::Free | Write::Depends => None,
    }
}

/// A user with a patch applied, checked like a whole document.
fn patched(record: &Record, change: Value, api: &Api) -> Result<Draft, Failure> {
    let mut value: Value = sonic_rs::from_slice(&record.body).map_err(unwritable)?;
    if let Value::Object(members) = &mut value {
        Document::READ_ONLY.iter().for_each(|name| drop(members.remove(*name)));
    }
    merge(&mut value, change);
    let text = sonic_rs::to_vec(&value).map_err(unwritable)?;
    let limits = api.settings().limits;
    if text.len() > limits.user_bytes {
        return Err(too_long());
    }
    draft(&parse::document(&text, &limits)?, &limits)
}
