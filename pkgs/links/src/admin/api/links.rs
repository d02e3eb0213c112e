//! Single links, and lists.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use service::problem::Problem;
use url::form_urlencoded;
use utoipa::ToSchema;

use super::body;
use super::domains::{self, At};
use crate::admin::audit::{self, Audit, Before, Written};
use crate::admin::blocking::block;
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::query;
use crate::admin::protocol::respond::uncached;
use crate::admin::{State, auth};
use crate::link::{Link, LinkPatch, NewLink, Status};
use crate::store::{Error, Grant, IdempotencyKey, ListQuery, Pending, Sort};

/// A link as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shown {
    /// The link.
    #[serde(flatten)]
    pub link: Link,
    /// The full short URL.
    #[schema(example = "https://go.example/q7Hk2mZ")]
    pub short_url: String,
}

impl Shown {
    pub(in crate::admin) fn new(state: &State, link: Link) -> Self {
        Self { short_url: state.short_url(&link), link }
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listing {
    /// The links.
    pub links: Vec<Shown>,
    /// The cursor of the next page; none on the last.
    pub next: Option<String>,
    /// How many links were examined, if the time was up before the page was full. `next` continues after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<u64>,
}

/// Ascending or descending: the old way to reverse `sort`, before it accepted a `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Smallest first.
    Asc,
    /// Greatest first.
    Desc,
}

/// Parameters of a list.
#[derive(Debug, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::admin) struct ListParameters {
    /// Links per page. It has fewer, and a `next`, if their texts exceed 1 MiB.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    /// `next` of the previous page. The other parameters must stay the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// Only links whose code, target or title contains this.
    #[serde(skip_serializing_if = "Option::is_none", alias = "search")]
    q: Option<String>,
    /// Only links with this tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// Only links of this status.
    #[param(inline)]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Only links of this domain; `default` is the one without a name. All domains if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// How long to search without an index, in milliseconds. The page is what was found by then; if it is not full, it
    /// has `looked_at`.
    #[param(minimum = 1, maximum = 2000, default = 2000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<u64>,
    /// The order: `created`, `updated`, `clicks` or `code`, with a leading `-` for greatest first. Default: `-created`.
    #[param(value_type = Option<String>, pattern = "^-?(created|updated|clicks|code)$", default = "-created")]
    #[serde(skip_serializing_if = "Option::is_none")]
    sort: Option<String>,
    #[param(ignore)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
}

/// The names of all parameters, for the error about an unknown one.
const PARAMETERS: &str = "limit, cursor, q, tag, status, domain, within, sort";

/// The field to sort by, and whether the greatest comes first.
fn sorting(sort: Option<&str>, order: Option<Order>) -> Result<(Sort, bool), Failure> {
    let text = sort.unwrap_or("-created");
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    let sort = match name {
        "created" => Sort::Created,
        "updated" => Sort::Updated,
        "clicks" => Sort::Clicks,
        "code" => Sort::Code,
        _ => {
            let reason = "is created, updated, clicks or code, with a - in front for the greatest first";
            return Err(query::refuse("sort", reason));
        }
    };
    Ok((sort, order.map_or(descending, |order| order == Order::Desc)))
}

/// Create a link
///
/// With an `Idempotency-Key`, a repeat of the same request within 24 hours is answered with the link that the first one
/// created.
#[utoipa::path(post, path = "/api/v1/links", tag = "links", operation_id = "createLink",
    request_body = NewLink, security(("bearer" = ["write"])),
    params(("Idempotency-Key" = Option<String>, Header,
        description = "1 to 255 visible ASCII characters", max_length = 255)),
    responses(
        (status = 201, description = "Created", body = Shown,
            headers(("Location" = String, description = "The link"), ("ETag" = String))),
        (status = 200, description = "Created by an earlier request with the same key", body = Shown,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 409, description = "The code is taken", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(in crate::admin) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let key = idempotency_key(&request)?;
    let (link, body, mut room): (NewLink, _, _) = body::json_as_sent(&request, payload).await?;
    room.grow(link.tags.len() * size_of::<String>())?;
    let grant = auth::granted(&request)?;
    domains::one(&grant, &state, link.domain.as_deref()).map_err(of_body)?;
    let key = key.map(|key| IdempotencyKey::new(of_client(&grant, &key), &body));
    let hashes = link.password.is_some();
    let store = state.store.clone();
    let created = submit(hashes, move || store.create_within(&grant.domains, link, key)).await?;
    let audit = Audit::of(&request, &state);
    if audit.is_on() && !created.replayed {
        let (target, after) = (audit::target_of(&created.link), Some(audit::digest(&created.link)));
        audit.wrote("link.create", &[Written { target, before: None, after }]).await;
    }
    let mut response = if created.replayed { HttpResponse::Ok() } else { HttpResponse::Created() };
    if created.replayed {
        response.insert_header(("Idempotent-Replayed", "true"));
    }
    let at = created.link.domain.as_ref().map_or_else(String::new, |domain| format!("?domain={domain}"));
    response.insert_header((header::LOCATION, format!("/api/v1/links/{}{at}", created.link.code)));
    Ok(show(response, &state, created.link))
}

/// List links
///
/// Returns pages. The `Link` header has the next page's address (RFC 8288).
#[utoipa::path(get, path = "/api/v1/links", tag = "links", operation_id = "listLinks",
    params(ListParameters), security(("bearer" = ["read"])),
    responses((status = 200, description = "A page of links", body = Listing,
        headers(("Link" = String, description = "`rel=\"next\"`, on every page but the last")))))]
pub(in crate::admin) async fn list(
    request: HttpRequest,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let mut parameters: ListParameters = query::parse_of(&request, PARAMETERS)?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=1000).contains(&limit) {
        return Err(query::refuse("limit", "is from 1 to 1000"));
    }
    if parameters.within.is_some_and(|within| !(1..=2000).contains(&within)) {
        return Err(query::refuse("within", "is from 1 to 2000 milliseconds"));
    }
    let (sort, descending) = sorting(parameters.sort.as_deref(), parameters.order)?;
    let query = ListQuery {
        search: parameters.q.clone(),
        tag: parameters.tag.clone(),
        status: parameters.status,
        domains: domains::several(&request, &state, parameters.domain.as_deref())?,
        sort,
        descending,
        limit,
        cursor: parameters.cursor.clone(),
        within: parameters.within.map(Duration::from_millis),
    };
    let page = state.readers.with(move |reader| reader.list(&query)).await.map_err(|error| match error {
        Error::Field { field, reason } => query::refuse(field, &reason),
        error => error.into(),
    })?;
    let mut response = HttpResponse::Ok();
    if page.next.is_some() {
        parameters.cursor.clone_from(&page.next);
        response.insert_header((header::LINK, format!("<{}>; rel=\"next\"", address(&parameters))));
    }
    let links = page.links.into_iter().map(|link| Shown::new(&state, link)).collect();
    Ok(uncached(response).json(Listing { links, next: page.next, looked_at: page.looked_at }))
}

/// Read a link
///
/// The ETag changes with every edit but not with clicks, so a busy link can be edited with `If-Match`.
#[utoipa::path(get, path = "/api/v1/links/{code}", tag = "links", operation_id = "readLink",
    params(("code" = String, Path), At), security(("bearer" = ["read"])),
    responses((status = 200, description = "The link", body = Shown, headers(("ETag" = String)))))]
pub(in crate::admin) async fn read(
    request: HttpRequest,
    code: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let key = domains::key(&request, &state, code.into_inner())?;
    let link = state.readers.with(move |reader| reader.get(key)).await?;
    Ok(show(HttpResponse::Ok(), &state, link))
}

/// Edit a link
///
/// A merge patch (RFC 7396): an absent field stays, `null` clears it.
#[utoipa::path(patch, path = "/api/v1/links/{code}", tag = "links", operation_id = "editLink",
    params(("code" = String, Path), At, ("If-Match" = Option<String>, Header, description = "ETags, or `*`")),
    request_body(content = LinkPatch, content_type = "application/merge-patch+json"),
    security(("bearer" = ["write"])),
    responses(
        (status = 200, description = "As edited", body = Shown, headers(("ETag" = String))),
        (status = 412, description = "The link is not as `If-Match` has it", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(in crate::admin) async fn edit(
    request: HttpRequest,
    code: web::Path<String>,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let key = domains::key(&request, &state, code.into_inner())?;
    let (patch, mut room): (LinkPatch, _) = body::merge_patch(&request, payload, body::ONE).await?;
    room.grow(patch.tags.as_ref().map_or(0, Vec::len) * size_of::<String>())?;
    let (audit, expected) = (Audit::of(&request, &state), if_match(&request));
    let before = audit.before();
    let expected = seen(before.clone(), expected);
    let hashes = matches!(patch.password, Some(Some(_)));
    let store = state.store.clone();
    let link = submit(hashes, move || store.edit_if(key, patch, expected)).await?;
    if let Some(before) = before {
        let (target, after) = (audit::target_of(&link), Some(audit::digest(&link)));
        audit.wrote("link.edit", &[Written { target, before: before.get(), after }]).await;
    }
    Ok(show(HttpResponse::Ok(), &state, link))
}

/// Delete a link and its clicks
#[utoipa::path(delete, path = "/api/v1/links/{code}", tag = "links", operation_id = "deleteLink",
    params(("code" = String, Path), At, ("If-Match" = Option<String>, Header, description = "ETags, or `*`")),
    security(("bearer" = ["write"])),
    responses(
        (status = 204, description = "Deleted"),
        (status = 412, description = "The link is not as `If-Match` has it", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(in crate::admin) async fn delete(
    request: HttpRequest,
    code: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let key = domains::key(&request, &state, code.into_inner())?;
    let audit = Audit::of(&request, &state);
    let (before, target) = (audit.before(), audit.is_on().then(|| audit::target(&state, &key)));
    state.store.delete_if(key, seen(before.clone(), if_match(&request))).await?;
    if let (Some(before), Some(target)) = (before, target) {
        audit.wrote("link.delete", &[Written { target, before: before.get(), after: None }]).await;
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Converts the error for a link's domain that does not exist: it is an error of the field, not of the URL.
pub(in crate::admin) fn of_body(failure: Failure) -> Failure {
    let problem = failure.into_problem();
    match problem.status {
        404 => Problem::unprocessable("a field is wrong").with_error("/domain", problem.detail).into(),
        _ => problem.into(),
    }
}

/// Passes a command to the writer. A command that hashes a password runs on a thread that may block.
pub(in crate::admin) async fn submit<T: Send + 'static>(
    hashes: bool,
    command: impl FnOnce() -> Pending<T> + Send + 'static,
) -> Result<T, Failure> {
    let pending = match hashes {
        true => block(command).await?,
        false => command(),
    };
    Ok(pending.await?)
}

fn show(mut response: actix_web::HttpResponseBuilder, state: &State, link: Link) -> HttpResponse {
    response.insert_header((header::ETAG, etag(&link)));
    uncached(response).json(Shown::new(state, link))
}

/// A strong validator of everything that an edit can change. It leaves out clicks, since otherwise a busy link could
/// never be edited conditionally. It is not used for caching.
fn etag(link: &Link) -> String {
    format!("\"{}\"", HEXLOWER.encode(&audit::sum(link)[..12]))
}

/// Returns the same condition, which also takes the link's digest.
fn seen(
    before: Option<Before>,
    expected: impl FnOnce(&Link) -> bool + Send + 'static,
) -> impl FnOnce(&Link) -> bool + Send + 'static {
    move |link| {
        if let Some(before) = before {
            before.take(link);
        }
        expected(link)
    }
}

/// Whether a link matches `If-Match` (RFC 9110, section 13.1.1). Without this field, every link matches. It is checked
/// within the transaction, so no other write can come between.
fn if_match(request: &HttpRequest) -> impl FnOnce(&Link) -> bool + Send + 'static {
    let wanted: Option<Vec<String>> = request.headers().contains_key(header::IF_MATCH).then(|| {
        let values = request.headers().get_all(header::IF_MATCH).filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',').map(|tag| tag.trim().to_owned())).collect()
    });
    move |link| wanted.is_none_or(|tags| tags.iter().any(|tag| tag == "*" || *tag == etag(link)))
}

fn idempotency_key(request: &HttpRequest) -> Result<Option<String>, Failure> {
    let Some(value) = request.headers().get("Idempotency-Key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(key.to_owned()))
        }
        _ => Err(Problem::bad_request("an Idempotency-Key has 1 to 255 visible ASCII characters").into()),
    }
}

/// An `Idempotency-Key` as it is stored: each client has its own. A header's key has no space, so no two are equal.
fn of_client(grant: &Grant, key: &str) -> String {
    format!("{} {key}", grant.client)
}

/// The address of the page with these parameters.
fn address(parameters: &ListParameters) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(parameters) {
        for (name, value) in fields {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            query.append_pair(&name, &text);
        }
    }
    format!("/api/v1/links?{}", query.finish())
}
