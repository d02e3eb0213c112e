//! Domains, and the domain of a request.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use service::problem::Problem;
use utoipa::ToSchema;

use super::body;
use crate::admin::audit::{self, Audit, Written};
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::query;
use crate::admin::protocol::respond::uncached;
use crate::admin::{State, auth};
use crate::domains::{Domain, DomainId, DomainPatch, InDomains, LinkKey, NewDomain};
use crate::store::{Error, Grant};

/// The domain of the link in the path.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::admin) struct At {
    /// The domain of the link; the default one if absent or `default`.
    domain: Option<String>,
}

/// Parameters of a deletion.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Deletion {
    /// Whether to also delete its links and their clicks.
    #[serde(default)]
    force: bool,
}

/// A list of domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainList {
    /// Sorted by host. The default one has no name and is not listed.
    pub domains: Vec<Domain>,
}

/// The key of the link that a request names.
pub(in crate::admin) fn key(request: &HttpRequest, state: &State, code: String) -> Result<LinkKey, Failure> {
    let At { domain } = query::parse(request)?;
    key_at(request, state, domain.as_deref(), code)
}

/// Like [`key`], with the parameter already read.
pub(in crate::admin) fn key_at(
    request: &HttpRequest,
    state: &State,
    domain: Option<&str>,
    code: String,
) -> Result<LinkKey, Failure> {
    Ok(LinkKey { domain: one(&auth::granted(request)?, state, domain)?, code })
}

/// The named domain, if the client may use it.
pub(in crate::admin) fn one(grant: &Grant, state: &State, name: Option<&str>) -> Result<DomainId, Failure> {
    let id = state.store.domains().id(name);
    match (id, &grant.domains) {
        (id, InDomains::All) => Ok(id.map_err(Error::from)?),
        (Ok(id), domains) if domains.has(id) => Ok(id),
        // The answer does not reveal whether another domain of this name exists.
        _ => Err(auth::elsewhere(name)),
    }
}

/// The requested domains: the named one, or all that the client may use.
pub(in crate::admin) fn several(
    request: &HttpRequest,
    state: &State,
    name: Option<&str>,
) -> Result<InDomains, Failure> {
    let grant = auth::granted(request)?;
    match name {
        Some(_) => Ok(InDomains::Only(vec![one(&grant, state, name)?])),
        None => Ok(grant.domains),
    }
}

/// The domain of this host, if the client may use it. It is never the default domain.
fn of_path(request: &HttpRequest, state: &State, host: &str) -> Result<Domain, Failure> {
    let id = one(&auth::granted(request)?, state, Some(host))?;
    let domain = state.store.domains().get(id).map(|domain| Domain::clone(domain));
    Ok(domain.ok_or_else(|| Error::NoDomain(host.to_owned()))?)
}

/// The current digest of the domain of this host.
fn known(state: &State, host: &str) -> Option<String> {
    let id = state.store.domains().id(Some(host)).ok()?;
    state.store.domains().get(id).map(|domain| audit::digest_of_domain(domain))
}

/// List domains
///
/// The domains that the key may use, sorted by host.
#[utoipa::path(get, path = "/api/v1/domains", tag = "domains", operation_id = "listDomains",
    security(("bearer" = ["read"])),
    responses((status = 200, description = "The domains", body = DomainList)))]
pub(in crate::admin) async fn list(
    request: HttpRequest,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let granted = auth::granted(&request)?.domains;
    let domains = state.store.domains().sorted().into_iter();
    let domains = domains.filter(|domain| granted.has(domain.id)).map(|domain| Domain::clone(&domain));
    Ok(uncached(HttpResponse::Ok()).json(DomainList { domains: domains.collect() }))
}

/// Create a domain
///
/// Requires a key for all domains, as do editing and deleting.
#[utoipa::path(post, path = "/api/v1/domains", tag = "domains", operation_id = "createDomain",
    request_body = NewDomain, security(("bearer" = ["write"])),
    responses(
        (status = 201, description = "Created", body = Domain, headers(("Location" = String))),
        (status = 409, description = "There is one of this host", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(in crate::admin) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    state.answers.check(&request)?;
    let (new, _room): (NewDomain, _) = body::json(&request, payload, body::DOMAIN).await?;
    let domain = state.store.create_domain(new).await?;
    let after = Some(audit::digest_of_domain(&domain));
    let written = Written { target: domain.host.clone(), before: None, after };
    Audit::of(&request, &state).wrote("domain.create", &[written]).await;
    let mut response = HttpResponse::Created();
    response.insert_header((header::LOCATION, format!("/api/v1/domains/{}", domain.host)));
    Ok(uncached(response).json(domain))
}

/// Read a domain
#[utoipa::path(get, path = "/api/v1/domains/{host}", tag = "domains", operation_id = "readDomain",
    params(("host" = String, Path)), security(("bearer" = ["read"])),
    responses((status = 200, description = "The domain", body = Domain)))]
pub(in crate::admin) async fn read(
    request: HttpRequest,
    host: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    Ok(uncached(HttpResponse::Ok()).json(of_path(&request, &state, &host)?))
}

/// Edit a domain
///
/// A merge patch (RFC 7396): an absent field stays, `null` clears it. The host cannot change.
#[utoipa::path(patch, path = "/api/v1/domains/{host}", tag = "domains", operation_id = "editDomain",
    params(("host" = String, Path)),
    request_body(content = DomainPatch, content_type = "application/merge-patch+json"),
    security(("bearer" = ["write"])),
    responses((status = 200, description = "As edited", body = Domain)))]
pub(in crate::admin) async fn edit(
    request: HttpRequest,
    host: web::Path<String>,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    state.answers.check(&request)?;
    let (patch, _room): (DomainPatch, _) = body::merge_patch(&request, payload, body::DOMAIN).await?;
    let before = known(&state, &host);
    let domain = state.store.edit_domain(host.into_inner(), patch).await?;
    let after = Some(audit::digest_of_domain(&domain));
    let written = Written { target: domain.host.clone(), before, after };
    Audit::of(&request, &state).wrote("domain.edit", &[written]).await;
    Ok(uncached(HttpResponse::Ok()).json(domain))
}

/// Delete a domain
///
/// A domain with links is deleted only with `force=true`, together with its links and their clicks.
#[utoipa::path(delete, path = "/api/v1/domains/{host}", tag = "domains", operation_id = "deleteDomain",
    params(("host" = String, Path), Deletion), security(("bearer" = ["write"])),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "It has links", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(in crate::admin) async fn delete(
    request: HttpRequest,
    host: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    auth::for_all_domains(&request)?;
    let Deletion { force } = query::parse(&request)?;
    let before = known(&state, &host);
    let mut wrote = false;
    let deleted = loop {
        match state.store.delete_domain(host.clone(), force).await {
            Ok(false) => wrote = true,
            ended => break ended,
        }
    };
    if wrote || deleted.is_ok() {
        // After an error, links are gone and the domain is still there.
        let after = deleted.as_ref().err().and_then(|_| known(&state, &host));
        let written = Written { target: host.into_inner(), before, after };
        Audit::of(&request, &state).wrote("domain.delete", &[written]).await;
    }
    deleted?;
    Ok(HttpResponse::NoContent().finish())
}
