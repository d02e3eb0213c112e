//! Many links in one transaction. Each succeeds or fails separately.

use std::fmt;
use std::marker::PhantomData;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use service::problem::Problem;
use utoipa::ToSchema;

use super::body::{self, Room};
use super::domains::{self, At};
use super::links::{Shown, of_body, submit};
use crate::admin::audit::{self, Audit, Written};
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::respond::uncached;
use crate::admin::{State, auth};
use crate::domains::LinkKey;
use crate::link::{Link, LinkPatch, ManyPatch, NewLink};
use crate::store::Error;

/// The most items a batch may have.
const ITEMS: usize = 10_000;

/// The most items of a batch that may have a password. Each takes some 20 ms, and the batch one of the few places for
/// work that blocks.
const PASSWORDS: usize = 100;

/// What an item takes in memory, in bytes, however short it is: in the end, its result (some 500 bytes) and that as
/// JSON. A body of items of 14 bytes would otherwise count for little of what is made of it.
const ITEM_BYTES: usize = 1024;

/// The result of one item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// The status that the item would have had alone.
    pub status: u16,
    /// The link created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Shown>,
    /// The reason, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// The links to change, and the change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyEdit {
    /// The links to change.
    #[serde(deserialize_with = "items")]
    links: Vec<LinkName>,
    /// The fields to set on each.
    #[serde(default)]
    set: LinkPatch,
    /// Tags to add to each.
    #[serde(default)]
    add_tags: Vec<String>,
    /// Tags to remove from each.
    #[serde(default)]
    remove_tags: Vec<String>,
}

/// The name of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkName {
    /// Its domain; the default one if absent or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its code.
    pub code: String,
}

impl Outcome {
    fn failed(failure: Failure) -> Self {
        let problem = failure.into_problem();
        Self { status: problem.status, link: None, problem: Some(problem) }
    }
}

/// Create many links
///
/// At most 10,000 in at most 8 MiB, and at most 100 with a password; use import for more. The answer has one result per
/// item, in their order.
#[utoipa::path(post, path = "/api/v1/links/batch", tag = "links", operation_id = "createLinks",
    request_body = Vec<NewLink>, security(("bearer" = ["write"])),
    responses((status = 200, description = "What became of each", body = Vec<Outcome>)))]
pub(in crate::admin) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    state.answers.check(&request)?;
    let (Items(links), mut room): (Items<NewLink>, _) = body::json(&request, payload, body::BATCH).await?;
    let links = bounded(links)?;
    check_passwords(&links)?;
    hold(&mut room, links.len(), links.iter().map(|link| link.tags.len()).sum())?;
    let grant = auth::granted(&request)?;
    let mut taken = Vec::new();
    // `None` for items that are passed to the store.
    let refused: Vec<Option<Failure>> = (links.into_iter())
        .map(|link| match domains::one(&grant, &state, link.domain.as_deref()) {
            Ok(_) => {
                taken.push(link);
                None
            }
            Err(failure) => Some(of_body(failure)),
        })
        .collect();
    let hashes = taken.iter().any(|link| link.password.is_some());
    let store = state.store.clone();
    let created = submit(hashes, move || store.create_many(&grant.domains, taken)).await?;
    let audit = Audit::of(&request, &state);
    if audit.is_on() {
        let links = created.iter().flatten();
        let of = |link: &Link| Written {
            target: audit::target_of(link),
            before: None,
            after: Some(audit::digest(link)),
        };
        audit.wrote("link.create", &links.map(of).collect::<Vec<_>>()).await;
    }
    let of = |link| Outcome { status: 201, link: Some(Shown::new(&state, link)), problem: None };
    Ok(uncached(HttpResponse::Ok()).json(outcomes(refused, created, of)))
}

/// Edit many links
///
/// Makes the same change to at most 10,000 links, in one transaction; each succeeds or fails separately. The answer has
/// one result per link, in their order, without the links.
#[utoipa::path(post, path = "/api/v1/links/batch-edit", tag = "links", operation_id = "editLinks",
    request_body = ManyEdit, security(("bearer" = ["write"])),
    responses((status = 200, description = "What became of each", body = Vec<Outcome>)))]
pub(in crate::admin) async fn edit(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    state.answers.check(&request)?;
    let (ManyEdit { links, set, add_tags, remove_tags }, mut room) =
        body::json(&request, payload, body::BATCH).await?;
    let links = bounded(links)?;
    let tags = set.tags.as_ref().map_or(0, Vec::len) + add_tags.len() + remove_tags.len();
    hold(&mut room, links.len(), tags)?;
    let patch = ManyPatch { set, add_tags, remove_tags };
    if patch == ManyPatch::default() {
        return Err(Problem::unprocessable("there is nothing to change").into());
    }
    let grant = auth::granted(&request)?;
    let mut taken = Vec::new();
    // `None` for links that are passed to the store.
    let refused: Vec<Option<Failure>> = (links.into_iter())
        .map(|LinkName { domain, code }| match domains::one(&grant, &state, domain.as_deref()) {
            Ok(domain) => {
                taken.push(LinkKey { domain, code });
                None
            }
            Err(failure) => Some(of_body(failure)),
        })
        .collect();
    let audit = Audit::of(&request, &state);
    let (store, is_on) = (state.store.clone(), audit.is_on());
    let hashes = matches!(patch.set.password, Some(Some(_)));
    let see = move |before: &Link, after: &Link| {
        is_on.then(|| Written {
            target: audit::target_of(after),
            before: Some(audit::digest(before)),
            after: Some(audit::digest(after)),
        })
    };
    let edited = submit(hashes, move || store.edit_many(taken, patch, see)).await?;
    let mut written = Vec::new();
    let edited: Vec<Result<(), Error>> =
        edited.into_iter().map(|edited| edited.map(|line| written.extend(line))).collect();
    audit.wrote("link.edit", &written).await;
    let of = |()| Outcome { status: 200, link: None, problem: None };
    Ok(uncached(HttpResponse::Ok()).json(outcomes(refused, edited, of)))
}

/// Delete many links
///
/// At most 10,000 codes of one domain. The answer has one result per code, in their order.
#[utoipa::path(post, path = "/api/v1/links/batch-delete", tag = "links", operation_id = "deleteLinks",
    request_body = Vec<String>, params(At), security(("bearer" = ["write"])),
    responses((status = 200, description = "What became of each", body = Vec<Outcome>)))]
pub(in crate::admin) async fn delete(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    state.answers.check(&request)?;
    let LinkKey { domain, .. } = domains::key(&request, &state, String::new())?;
    let (Items(codes), mut room): (Items<String>, _) = body::json(&request, payload, body::BATCH).await?;
    let codes = bounded(codes)?;
    hold(&mut room, codes.len(), 0)?;
    let keys: Vec<_> = codes.into_iter().map(|code| LinkKey { domain, code }).collect();
    let audit = Audit::of(&request, &state);
    let deleted: Vec<Result<(), Error>> = if audit.is_on() {
        let named: Vec<_> = keys.iter().map(|key| audit::target(&state, key)).collect();
        let deleted = state.store.delete_many_seen(keys, audit::digest).await?;
        let of = |(target, digest): (String, &Result<String, Error>)| {
            digest.as_ref().ok().map(|digest| Written { target, before: Some(digest.clone()), after: None })
        };
        let written: Vec<_> = named.into_iter().zip(&deleted).filter_map(of).collect();
        audit.wrote("link.delete", &written).await;
        deleted.into_iter().map(|deleted| deleted.map(drop)).collect()
    } else {
        state.store.delete_many(keys).await?
    };
    let outcomes: Vec<_> = (deleted.into_iter())
        .map(|deleted| match deleted {
            Ok(()) => Outcome { status: 204, link: None, problem: None },
            Err(error) => Outcome::failed(error.into()),
        })
        .collect();
    Ok(uncached(HttpResponse::Ok()).json(outcomes))
}

/// Combines the results in the order of the items. `refused` is `None` for an item whose result is in `done`.
fn outcomes<T>(
    refused: Vec<Option<Failure>>,
    done: Vec<Result<T, Error>>,
    of: impl Fn(T) -> Outcome,
) -> Vec<Outcome> {
    let mut done = done.into_iter();
    let one = |refused| match refused {
        Some(failure) => Some(Outcome::failed(failure)),
        None => done.next().map(|done| match done {
            Ok(done) => of(done),
            Err(error) => Outcome::failed(error.into()),
        }),
    };
    refused.into_iter().filter_map(one).collect()
}

/// A batch as sent.
#[derive(Deserialize)]
#[serde(transparent, bound = "T: Deserialize<'de>")]
struct Items<T>(#[serde(deserialize_with = "items")] Vec<T>);

/// Reads at most one item more than [`ITEMS`], by which [`bounded`] sees that there are too many. Further ones are
/// skipped: the shortest take sixteen times as much memory as in the body.
fn items<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Reading<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Reading<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = sequence.next_element()? {
                items.push(item);
                if items.len() > ITEMS {
                    while sequence.next_element::<IgnoredAny>()?.is_some() {}
                    break;
                }
            }
            Ok(items)
        }
    }

    deserializer.deserialize_seq(Reading::<T>(PhantomData))
}

fn bounded<T>(items: Vec<T>) -> Result<Vec<T>, Failure> {
    match items.len() {
        ..=ITEMS => Ok(items),
        _ => Err(Problem::too_large(format!("a batch has at most {ITEMS} items")).into()),
    }
}

/// Refuses a batch of more than [`PASSWORDS`] passwords.
fn check_passwords(links: &[NewLink]) -> Result<(), Failure> {
    let mut protected = links.iter().enumerate().filter(|(_, link)| link.password.is_some());
    match protected.nth(PASSWORDS) {
        None => Ok(()),
        Some((index, _)) => {
            let detail = format!("at most {PASSWORDS} links of a batch have one; use import for more");
            let problem = Problem::unprocessable("the batch has too many passwords");
            Err(problem.with_error(format!("/{index}/password"), detail).into())
        }
    }
}

/// Makes the room of a body large enough for what is made of its items and their tags.
fn hold(room: &mut Room, items: usize, tags: usize) -> Result<(), Failure> {
    room.grow(items * ITEM_BYTES + tags * size_of::<String>())
}
