//! Bearer tokens (RFC 6750). Each request looks up our own tokens in the store, so a revoked token ends at once. If an
//! issuer is configured, its JSON Web Tokens are accepted too, until they expire.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, ResponseError, web};
use oidc::jwt::{self, Tokens};
use oidc::token::{Refused, TOKEN_BYTES, may_be};
use service::access_log::RequestContext;
use service::allowed_hosts::SocketFamily;
use service::problem::Problem;
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::State;
use super::protocol::failure::Failure;
use crate::domains::{DEFAULT, InDomains};
use crate::store::{self, Grant, Reader, Scope};
use crate::when::Timestamp;

/// The answer's header for an invalid token.
const INVALID: &str = "Bearer error=\"invalid_token\"";

/// How many unknown tokens per second are looked up in the database.
const LOOKS: u32 = 50;

const SECOND: Duration = Duration::from_secs(1);

/// How long a token waits to be looked up, and how often that is tried: a second in all.
const PAUSE: Duration = Duration::from_millis(50);
const ATTEMPTS: u32 = 20;

/// How many known tokens are remembered. The store cannot have more.
const KNOWN: usize = 1_000;

/// Lets only requests with a token of this scope through to the handler, before their body is read. Their answers are
/// counted, and not those without a token, so that strangers cannot take the room of clients.
pub(super) async fn require(
    scope: Scope,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match check(scope, request.request()).await {
        Ok(granted) => {
            if let Some(context) = request.extensions().get::<RequestContext>() {
                granted.id.into_iter().for_each(|id| context.set_key(id));
            }
            request.extensions_mut().insert(granted);
            let response = next.call(request).await?;
            let state = response.request().app_data::<web::Data<State>>().cloned();
            Ok(match state {
                Some(state) => state.answers.keep(response),
                None => response,
            })
        }
        Err(failure) => Ok(request.into_response(failure.error_response())),
    }
}

/// Refuses requests that a web page may have sent by DNS rebinding: requests without a key, for a host that is not
/// ours.
pub(super) async fn by_local_names<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let state = request.app_data::<web::Data<State>>();
    if let Some(hosts) = state.and_then(|state| state.hosts.as_ref())
        // On paths that check keys, a request with a key does not come from a web page.
        && !(request.path().starts_with("/api/v1/") && request.headers().contains_key(header::AUTHORIZATION))
    {
        let field = |name| request.headers().get(name).map(HeaderValue::as_bytes);
        if let Err(refused) = hosts.check(SocketFamily::Network, field(header::HOST), field(header::ORIGIN)) {
            let failure = Failure::from(Problem::from(refused));
            return Ok(request.into_response(failure.error_response()));
        }
    }
    Ok(next.call(request).await?.map_into_boxed_body())
}

/// Checks the token of a request that [`require`] has let through again, since it may have been revoked while the body
/// arrived. Its rights never change.
pub(super) async fn still(request: &HttpRequest) -> Result<(), Failure> {
    check(Scope::Read, request).await.map(drop)
}

/// The rights of the request's token, which [`require`] has checked.
pub(super) fn granted(request: &HttpRequest) -> Result<Grant, Failure> {
    let granted = request.extensions().get().cloned();
    granted.ok_or_else(|| Problem::internal("nobody has looked for a key").into())
}

/// 403 for a token that is not for all domains.
pub(super) fn for_all_domains(request: &HttpRequest) -> Result<(), Failure> {
    match granted(request)?.domains {
        InDomains::All => Ok(()),
        InDomains::Only(_) => {
            Err(Problem::forbidden("this needs a key for all domains; the one sent is for some of them")
                .into())
        }
    }
}

/// 403 for a token that is for other domains than this.
pub(super) fn elsewhere(domain: Option<&str>) -> Failure {
    store::Error::OtherDomain(domain.unwrap_or(DEFAULT).to_owned()).into()
}

/// 403 for a token that may only read.
pub(super) fn insufficient() -> Failure {
    Failure::from(Problem::forbidden("this needs a key of the scope write; the one sent has the scope read"))
        .with_header(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer error=\"insufficient_scope\", scope=\"write\""),
        )
}

async fn check(needed: Scope, request: &HttpRequest) -> Result<Grant, Failure> {
    let token = bearer(request).map_err(|detail| unauthorized(detail, "Bearer"))?;
    let unknown = || unauthorized("the key is unknown or revoked", INVALID);
    let state = state(request)?;
    if let Some(tokens) = state.tokens.as_ref().filter(|_| may_be(&token)) {
        return vouched_for(tokens, needed, &token).await;
    }
    if !Reader::could_be_token(&token) {
        return Err(unknown());
    }
    let hash: [u8; 32] = Sha256::digest(&token).into();
    let Some(counted) = state.unknown_tokens.wait_to_look(&hash).await else {
        return Err(Failure::from(Problem::new(429, "too many unknown keys are tried just now"))
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("1")));
    };
    let granted = state.readers.with(move |reader| reader.authorize(&token)).await?;
    state.unknown_tokens.looked(hash, granted.is_some(), counted);
    let granted = granted.ok_or_else(unknown)?;
    if let Some(end) = granted.expires_at.filter(|end| *end <= Timestamp::now()) {
        return Err(unauthorized(&format!("the key ended at {end}"), INVALID));
    }
    state.store.note_use(&granted);
    if granted.scope < needed {
        return Err(insufficient());
    }
    Ok(granted)
}

/// The rights of an issuer's token. They cover all domains, since the issuer does not know the domains.
async fn vouched_for(tokens: &Tokens, needed: Scope, token: &str) -> Result<Grant, Failure> {
    let bearer = tokens.bearer(token).await.map_err(|refused| match refused {
        Refused::Unavailable(error) => Failure::busy(&error.to_string()),
        refused => unauthorized(&refused.to_string(), INVALID),
    })?;
    let scope = match bearer.scope {
        Some(jwt::Scope::Write) => Scope::Write,
        Some(jwt::Scope::Read) => Scope::Read,
        None => return Err(Problem::forbidden("the token is of nobody who may do anything here").into()),
    };
    if scope < needed {
        return Err(insufficient());
    }
    let name = bearer.name.clone();
    Ok(Grant {
        id: None,
        client: bearer.id,
        name,
        scope,
        domains: InDomains::All,
        expires_at: None,
        last_used_at: None,
    })
}

/// Limits how often unknown tokens are looked up in the database, so that clients with invented tokens cannot occupy
/// the readers. Tokens that were recently known are always looked up, so a revoked token ends at once.
#[derive(Default)]
pub(super) struct UnknownTokens(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    known: HashSet<[u8; 32]>,
    /// When counting began, and how many unknown tokens were looked up since.
    missed: Option<(Instant, u32)>,
}

impl UnknownTokens {
    /// Waits a while until a token may be looked up: a token that is used for many requests at once is known as soon as
    /// the first of them is answered. Returns whether it counts; none if there are too many.
    async fn wait_to_look(&self, token: &[u8; 32]) -> Option<bool> {
        for _ in 0..ATTEMPTS {
            let may = self.may_look(token, Instant::now());
            if may.is_some() {
                return may;
            }
            sleep(PAUSE).await;
        }
        None
    }

    /// Whether a token that may be looked up counts; none if it may not. An unknown one counts from here on, even if its
    /// look-up fails.
    fn may_look(&self, token: &[u8; 32], now: Instant) -> Option<bool> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.known.contains(token) {
            return Some(false);
        }
        let (since, count) = match seen.missed {
            Some((since, count)) if now.duration_since(since) < SECOND => (since, count),
            _ => (now, 0),
        };
        let may = count < LOOKS;
        seen.missed = Some((since, count + u32::from(may)));
        may.then_some(true)
    }

    fn looked(&self, token: [u8; 32], found: bool, counted: bool) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !found {
            seen.known.remove(&token);
            return;
        }
        if seen.known.len() >= KNOWN {
            seen.known.clear();
        }
        seen.known.insert(token);
        if let Some((_, count)) = seen.missed.as_mut().filter(|_| counted) {
            *count = count.saturating_sub(1);
        }
    }
}

fn unauthorized(detail: &str, challenge: &'static str) -> Failure {
    Failure::from(Problem::unauthorized(detail))
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

/// The token, or the reason why there is none.
fn bearer(request: &HttpRequest) -> Result<String, &'static str> {
    let Some(value) = request.headers().get(header::AUTHORIZATION) else {
        return Err("a key is needed: Authorization: Bearer KEY");
    };
    let (scheme, token) = value.to_str().ok().and_then(|value| value.split_once(' ')).unwrap_or_default();
    let token = token.trim();
    // Our tokens are far shorter than an issuer's.
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES {
        Ok(token.to_owned())
    } else {
        Err("Authorization is there, but not as it is taken: Authorization: Bearer KEY")
    }
}

fn state(request: &HttpRequest) -> Result<&State, Failure> {
    let state = request.app_data::<web::Data<State>>();
    state.map(|state| &***state).ok_or_else(|| Problem::internal("the listener has no state").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tokens_cost_a_bounded_number_of_looks_and_known_ones_are_not_kept_out() {
        let (unknown_tokens, start) = (UnknownTokens::default(), Instant::now());
        let token = |n: u32| -> [u8; 32] { Sha256::digest(n.to_le_bytes()).into() };
        // A known one is asked for many times before its first look-up ends, and none of these counts in the end.
        for _ in 0..LOOKS {
            assert_eq!(unknown_tokens.may_look(&token(0), start), Some(true));
        }
        assert_eq!(unknown_tokens.may_look(&token(0), start), None);
        for _ in 0..LOOKS {
            unknown_tokens.looked(token(0), true, true);
        }
        // Those count that are looked up at once, and those whose look-up fails.
        let tried = (1..10_000).filter(|&n| unknown_tokens.may_look(&token(n), start).is_some());
        assert_eq!(tried.count(), LOOKS as usize);
        assert_eq!(unknown_tokens.may_look(&token(0), start), Some(false), "a known one");
        unknown_tokens.looked(token(0), false, false);
        assert_eq!(unknown_tokens.may_look(&token(0), start), None, "revoked: one more unknown");
        assert_eq!(unknown_tokens.may_look(&token(1), start + SECOND), Some(true), "a second later");
    }
}
