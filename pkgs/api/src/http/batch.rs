//! Many users at once.

use std::collections::{HashMap, HashSet};

use axum::extract::State;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use service::problem::Problem;

use super::Api;
use super::body::Many;
use super::failure::Failure;
use super::guard::{Reader, Writer};
use super::openapi::{Deletion, Ids, Lookup, NewUsers, Users};
use super::users::{claim, created, draft, json, mark};
use crate::store::Deleted;
use crate::user::{Record, UserId, parse};

/// Create many users
///
/// All or none.
#[utoipa::path(post, path = "/v1/users:batchCreate", tag = "batch", operation_id = "createUsers",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = r#"^[\x21\x23-\x7e]{1,255}$"#,
            description = "Makes the request once, however often it is sent; known as long as the users are")),
    request_body = NewUsers, security(("key" = ["write"])),
    responses((status = 201, description = "The users, in the order asked for", body = Users),
              (status = 409, description = "Another user has an email, or two of these have one", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    writer: Writer,
    State(api): State<Api>,
    head: HeaderMap,
    Many(body): Many,
) -> Result<Response, Failure> {
    let claim = claim(&head, &writer.0, "/v1/users:batchCreate", &body)?;
    let documents = parse::documents(&body, &api.settings().limits)?;
    let drafts = documents.iter().map(draft).collect::<Result<_, _>>()?;
    let created_users = api.users().create(drafts, claim).await?;
    let (records, replayed) = created(created_users, |index| format!("/users/{index}/email"))?;
    let mut response = json(StatusCode::CREATED, users(records.iter().map(|record| &record.body), "}"));
    mark(&mut response, replayed);
    Ok(response)
}

/// Read many users
#[utoipa::path(post, path = "/v1/users:batchGet", tag = "batch", operation_id = "getUsers",
    request_body = Ids, security(("key" = ["read"])),
    responses((status = 200, description = "Those that there are, in the order asked for, and those that there are not", body = Lookup)))]
pub(super) async fn get(_: Reader, State(api): State<Api>, Many(body): Many) -> Result<Response, Failure> {
    let ids = distinct(parse::ids(&body, &api.settings().limits)?);
    let records = api.users().get_many(&ids).await?;
    let records: HashMap<UserId, Record> = records.into_iter().map(|record| (record.id, record)).collect();
    let missing = ids.iter().filter(|id| !records.contains_key(id));
    let end = format!(",\"missing\":{}}}", list(missing));
    let found = ids.iter().filter_map(|id| records.get(id)).map(|record| &record.body);
    Ok(json(StatusCode::OK, users(found, &end)))
}

/// Delete many users
#[utoipa::path(post, path = "/v1/users:batchDelete", tag = "batch", operation_id = "deleteUsers",
    request_body = Ids, security(("key" = ["write"])),
    responses((status = 200, description = "Those that are gone now, and those that there were not", body = Deletion)))]
pub(super) async fn delete(_: Writer, State(api): State<Api>, Many(body): Many) -> Result<Response, Failure> {
    let ids = distinct(parse::ids(&body, &api.settings().limits)?);
    let Deleted::Done(deleted) = api.users().delete(&ids, None).await? else {
        return Err(Problem::internal("no version was asked for").into());
    };
    let deleted: HashSet<UserId> = deleted.into_iter().collect();
    let gone = list(ids.iter().filter(|id| deleted.contains(id)));
    let missing = list(ids.iter().filter(|id| !deleted.contains(id)));
    Ok(json(StatusCode::OK, format!("{{\"deleted\":{gone},\"missing\":{missing}}}")))
}

/// `{"users":[…]` of stored representations, and `end`.
pub(super) fn users<'a>(bodies: impl Iterator<Item = &'a Bytes>, end: &str) -> Bytes {
    let mut whole = BytesMut::new();
    whole.put_slice(b"{\"users\":[");
    for (index, body) in bodies.enumerate() {
        if index > 0 {
            whole.put_u8(b',');
        }
        whole.extend_from_slice(body);
    }
    whole.put_u8(b']');
    whole.put_slice(end.as_bytes());
    whole.freeze()
}

/// Each id once, in the order of their first places.
fn distinct(ids: Vec<UserId>) -> Vec<UserId> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}

fn list<'a>(ids: impl Iterator<Item = &'a UserId>) -> String {
    let ids: Vec<String> = ids.map(|id| format!("\"{id}\"")).collect();
    format!("[{}]", ids.join(","))
}
