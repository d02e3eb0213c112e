//! Many users at once.

use std::collections::{HashMap, HashSet};

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use service::problem::Problem;

use crate::http::Api;
use crate::http::access::guard::Caller;
use crate::http::audit::{Audit, Written};
use crate::http::document::unwritable;
use crate::http::failure::Failure;
use crate::http::openapi::{Deletion, Ids, Lookup, NewUsers, Users};
use crate::http::request::body::Many;
use crate::http::request::conditions::Conditions;
use crate::http::request::idempotency::{self, created, mark};
use crate::http::response::budget::Reservation;
use crate::http::response::respond::{json, users};
use crate::store::{Deleted, Draft};
use crate::user::{Document, Limits, Record, UserId, parse};

/// The most bytes of users that are read at once by their ids.
const MOST_BYTES: usize = 16 << 20;

/// How many users are read before their size is checked.
const PART: usize = 100;

/// Create many users
///
/// Creates all or none.
#[utoipa::path(post, path = "/v1/users:batchCreate", tag = "batch", operation_id = "createUsers",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, pattern = r#"^[\x21\x23-\x7e]{1,255}$"#,
            description = "Makes the request once, however often it is sent within a day; 1 GiB of answers are kept")),
    request_body = NewUsers,
    responses((status = 201, description = "The users, in the order asked for", body = Users),
              (status = 409, description = "Another user has an email, two of these have one, or they were created before by this Idempotency-Key and one has been deleted", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http) async fn create(
    caller: Caller,
    State(api): State<Api>,
    audit: Audit,
    head: HeaderMap,
    Many(body): Many,
) -> Result<Response, Failure> {
    let record = idempotency::record(&head, &caller, "/v1/users:batchCreate", &body)?;
    let limits = api.settings().limits;
    let drafts = parse::documents(&body, &limits, |index, document| draft(&document, index, &limits))?;
    let drafts = drafts.into_iter().collect::<Result<Vec<Draft>, Failure>>()?;
    audit.begin();
    let created_users = api.users().create(drafts, record).await?;
    let (records, replayed) = created(created_users, |index| format!("/users/{index}/email"))?;
    if !replayed {
        let written = || records.iter().map(|record| Written::new(record.id, None, Some(record)));
        audit.wrote("user.create", written).await;
    }
    let mut response = json(StatusCode::CREATED, users(records.iter().map(|record| &record.body), "}"));
    mark(&mut response, replayed);
    Ok(response)
}

/// The stored form of a document of a batch. The body of a batch may have more bytes than that of a user, and what is
/// stored more values than what was sent.
///
/// # Errors
/// 413 and 422 if it would be beyond the limits of a body about one user.
fn draft(document: &Document<'_>, index: usize, limits: &Limits) -> Result<Draft, Failure> {
    let draft = Draft::of(document).map_err(unwritable)?;
    let most = limits.user_bytes;
    if draft.document.len() > most {
        let problem = Problem::too_large(format!("a user of the batch has more than {most} bytes"));
        return Err(problem.with_error(format!("/users/{index}"), format!("more than {most} bytes")).into());
    }
    parse::stored(document, &draft.document).map_err(|refused| refused.below(&format!("/users/{index}")))?;
    Ok(draft)
}

/// Read many users
#[utoipa::path(post, path = "/v1/users:batchGet", tag = "batch", operation_id = "getUsers",
    request_body = Ids,
    responses((status = 200, description = "Those that there are, in the order asked for, and those that there are not", body = Lookup)))]
pub(in crate::http) async fn get(
    State(api): State<Api>,
    answer: Reservation,
    Many(body): Many,
) -> Result<Response, Failure> {
    let ids = distinct(parse::ids(&body, &api.settings().limits)?);
    let records = collected(&api, &ids, answer).await?;
    let missing = ids.iter().filter(|id| !records.contains_key(id));
    let end = format!(",\"missing\":{}}}", list(missing));
    let found = ids.iter().filter_map(|id| records.get(id)).map(|record| &record.body);
    Ok(json(StatusCode::OK, users(found, &end)))
}

/// The existing users with these ids.
///
/// # Errors
/// 413 if they are too large together, 503 if there is no room for them, or the database's error.
async fn collected(
    api: &Api,
    ids: &[UserId],
    mut answer: Reservation,
) -> Result<HashMap<UserId, Record>, Failure> {
    let (mut records, mut bytes) = (HashMap::with_capacity(ids.len()), 0);
    // Reads them in parts, so that it stops early if they are too large together.
    let mut parts = ids.chunks(PART).peekable();
    while let Some(part) = parts.next() {
        for record in api.users().get_many(part).await? {
            bytes += record.body.len();
            records.insert(record.id, record);
        }
        if bytes > MOST_BYTES {
            let detail =
                format!("these users have more than {MOST_BYTES} bytes together; ask for fewer at a time");
            return Err(Problem::too_large(detail).into());
        }
        // They stay in memory while the next part waits for the database. After the last one, the answer is made at
        // once, and counted itself.
        if parts.peek().is_some() && !answer.grow_to(bytes as u64) {
            return Err(Failure::no_room());
        }
    }
    Ok(records)
}

/// Delete many users
///
/// Deletes any version. If writes have to name a version, `If-Match` has to be `*`.
#[utoipa::path(post, path = "/v1/users:batchDelete", tag = "batch", operation_id = "deleteUsers",
    params(("If-Match" = Option<String>, Header, pattern = r#"^\*$"#, description = "Only `*`: whatever versions they are at")),
    request_body = Ids,
    responses((status = 200, description = "Those that are gone now, and those that there were not", body = Deletion)))]
pub(in crate::http) async fn delete(
    State(api): State<Api>,
    audit: Audit,
    head: HeaderMap,
    Many(body): Many,
) -> Result<Response, Failure> {
    // The body has no place for a version per user, so a condition on a version cannot hold (RFC 9110, section 13.1.1).
    let conditions = Conditions::of(&head)?;
    let required = api.settings().conditional_writes;
    if !conditions.means_any() && (required || conditions.names_version()) {
        let status = if required { 428 } else { 412 };
        let detail = "If-Match has to be *, for whatever versions they are at; a version goes with a DELETE of one user";
        return Err(Problem::new(status, detail).into());
    }
    let ids = distinct(parse::ids(&body, &api.settings().limits)?);
    let mut before = HashMap::new();
    for part in ids.chunks(PART).filter(|_| audit.is_on()) {
        // Keeps only the digests, since the users together may be large.
        let records = api.users().get_many(part).await?;
        before.extend(records.iter().map(|record| (record.id, Written::new(record.id, Some(record), None))));
    }
    audit.begin();
    let Deleted::Done(deleted) = api.users().delete(&ids, None).await? else {
        return Err(Problem::internal("no version was asked for").into());
    };
    let written = || {
        let of = |id: &UserId| before.remove(id).unwrap_or_else(|| Written::new(*id, None, None));
        deleted.iter().map(of).collect::<Vec<_>>()
    };
    audit.wrote("user.delete", written).await;
    let deleted: HashSet<UserId> = deleted.into_iter().collect();
    let gone = list(ids.iter().filter(|id| deleted.contains(id)));
    let missing = list(ids.iter().filter(|id| !deleted.contains(id)));
    Ok(json(StatusCode::OK, format!("{{\"deleted\":{gone},\"missing\":{missing}}}")))
}

/// Each id once, in the order of first occurrence.
fn distinct(ids: Vec<UserId>) -> Vec<UserId> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}

fn list<'a>(ids: impl Iterator<Item = &'a UserId>) -> String {
    let ids: Vec<String> = ids.map(|id| format!("\"{id}\"")).collect();
    format!("[{}]", ids.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::Settings;
    use crate::http::response::budget::ResponseBudget;
    use crate::store::Created;
    use crate::users::{DatabaseUrl, Options};

    #[tokio::test]
    async fn what_is_collected_for_an_answer_has_a_sum() {
        let directory = tempfile::tempdir().expect("a directory");
        let database = DatabaseUrl::Sqlite(directory.path().join("users.db"));
        let store = crate::users::Users::open(&Options::new(database)).await.expect("it opens");
        let api = Api::new(store, false, Settings::default());
        // One more than are read at once, with more than 200 KB together.
        let user = |number: usize| {
            let email = format!("u{number}@example.org");
            json!({"email": email, "name": "A", "profile": {"bio": "b".repeat(2000)}}).to_string()
        };
        let drafts = (0..=PART).map(user).map(|text| {
            let document = parse::document(text.as_bytes(), &Limits::default()).expect("it is well");
            Draft::of(&document).expect("it is written")
        });
        let created = api.users().create(drafts.collect(), None).await.expect("it is written");
        let Created::Done(records) = created else { panic!("{created:?}") };
        let ids: Vec<UserId> = records.iter().map(|record| record.id).collect();

        let answers = ResponseBudget::new(300 << 10);
        let mut another = answers.reservation();
        assert!(another.grow_to(200 << 10));
        let refused = collected(&api, &ids, answers.reservation()).await;
        assert_eq!(refused.err().map(|failure| failure.problem().status), Some(503));
        // What is answered at once waits for nothing.
        let part = collected(&api, &ids[..PART], answers.reservation()).await;
        assert_eq!(part.map(|records| records.len()).ok(), Some(PART));
        drop(another);
        let all = collected(&api, &ids, answers.reservation()).await;
        assert_eq!(all.map(|records| records.len()).ok(), Some(ids.len()));
    }
}
