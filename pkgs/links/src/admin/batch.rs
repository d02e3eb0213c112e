//! Many links in one transaction, each on its own merits.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use service::problem::Problem;
use utoipa::ToSchema;

use super::failure::Failure;
use super::links::{Shown, submit, uncached};
use super::{State, body};
use crate::link::NewLink;

/// The most items a batch may have.
const ITEMS: usize = 10_000;

/// What became of one item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// The status the item would have had on its own.
    pub status: u16,
    /// The link created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Shown>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl Outcome {
    fn failed(failure: Failure) -> Self {
        let problem = failure.into_problem();
        Self { status: problem.status, link: None, problem: Some(problem) }
    }
}

/// Create many links
///
/// At most 10,000 in at most 8 MiB; larger sets are for import. The answer has one outcome an item, in
/// their order.
#[utoipa::path(post, path = "/api/v1/links/batch", tag = "links", operation_id = "createLinks",
    request_body = Vec<NewLink>, security(("bearer" = ["write"])),
    responses((status = 200, description = "What became of each", body = Vec<Outcome>)))]
pub(super) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let links: Vec<NewLink> = bounded(body::json(&request, payload, body::BATCH).await?)?;
    let hashes = links.iter().any(|link| link.password.is_some());
    let store = state.store.clone();
    let created = submit(hashes, move || store.create_many(links)).await?;
    let outcomes: Vec<_> = (created.into_iter())
        .map(|created| match created {
            Ok(link) => Outcome { status: 201, link: Some(Shown::new(&state, link)), problem: None },
            Err(error) => Outcome::failed(error.into()),
        })
        .collect();
    Ok(uncached(HttpResponse::Ok()).json(outcomes))
}

/// Delete many links
///
/// At most 10,000 codes. The answer has one outcome a code, in their order.
#[utoipa::path(post, path = "/api/v1/links/batch-delete", tag = "links", operation_id = "deleteLinks",
    request_body = Vec<String>, security(("bearer" = ["write"])),
    responses((status = 200, description = "What became of each", body = Vec<Outcome>)))]
pub(super) async fn delete(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let codes: Vec<String> = bounded(body::json(&request, payload, body::BATCH).await?)?;
    let deleted = state.store.delete_many(codes).await?;
    let outcomes: Vec<_> = (deleted.into_iter())
        .map(|deleted| match deleted {
            Ok(()) => Outcome { status: 204, link: None, problem: None },
            Err(error) => Outcome::failed(error.into()),
        })
        .collect();
    Ok(uncached(HttpResponse::Ok()).json(outcomes))
}

fn bounded<T>(items: Vec<T>) -> Result<Vec<T>, Failure> {
    match items.len() {
        ..=ITEMS => Ok(items),
        more => Err(Problem::too_large(format!("{more} items are more than {ITEMS}")).into()),
    }
}
