//! Bearer tokens (RFC 6750). Each request asks the store, so a revoked token ends with its revocation.

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, ResponseError, web};
use service::problem::Problem;

use super::State;
use super::failure::Failure;
use crate::store::Scope;

/// The longest token looked at, in bytes; ours are far shorter.
const TOKEN_BYTES: usize = 256;

/// Lets only requests with a token of this scope through to the handler, before their body is read.
pub(super) async fn require(
    scope: Scope,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match check(scope, request.request()).await {
        Ok(granted) => {
            request.extensions_mut().insert(granted);
            next.call(request).await
        }
        Err(failure) => Ok(request.into_response(failure.error_response())),
    }
}

/// The scope of the request's token, which [`require`] has found.
pub(super) fn granted(request: &HttpRequest) -> Option<Scope> {
    request.extensions().get().copied()
}

/// 403 for a token that may only read.
pub(super) fn insufficient() -> Failure {
    Failure::from(Problem::forbidden("the token may only read")).with_header(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer error=\"insufficient_scope\", scope=\"write\""),
    )
}

async fn check(needed: Scope, request: &HttpRequest) -> Result<Scope, Failure> {
    let Some(token) = bearer(request) else {
        return Err(unauthorized("a bearer token is needed", "Bearer"));
    };
    let state = state(request)?;
    match state.readers.with(move |reader| reader.authorize(&token)).await? {
        Some(granted) if granted >= needed => Ok(granted),
        Some(_) => Err(insufficient()),
        None => Err(unauthorized("the token is unknown or revoked", "Bearer error=\"invalid_token\"")),
    }
}

fn unauthorized(detail: &str, challenge: &'static str) -> Failure {
    Failure::from(Problem::unauthorized(detail))
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

fn bearer(request: &HttpRequest) -> Option<String> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES)
        .then(|| token.to_owned())
}

fn state(request: &HttpRequest) -> Result<&State, Failure> {
    let state = request.app_data::<web::Data<State>>();
    state.map(|state| &***state).ok_or_else(|| Problem::internal("the listener has no state").into())
}
