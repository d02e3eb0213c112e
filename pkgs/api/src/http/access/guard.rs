//! Authentication: API keys as bearer tokens (RFC 6750), their scopes and their rates. Every request takes one token
//! from its key's bucket. If an issuer is configured, its JSON Web Tokens are accepted too; they have no rate.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use jiff::Timestamp;
use oidc::jwt::{self, Bearer, Tokens};
use oidc::token::{Refused, may_be};
use service::access_log::RequestContext;
use service::problem::Problem;
use service::rate_limit::RateLimiter;

use crate::http::access::rate::{REMEMBERED, Remaining, rate};
use crate::http::failure::{Failure, RETRY_AFTER};
use crate::keys::Secret;
use crate::store::{Key, Scope};
use crate::users::Users;

/// The client of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No keys are required.
    Anybody,
    /// Keys are required, and none was given.
    Nobody,
    /// This key; a negative id is the bearer of an issuer's token.
    Key(i64, Scope),
}

/// A caller, and what its bucket has left.
pub struct Admitted {
    /// The caller.
    pub caller: Caller,
    /// What is left, if the key has a rate.
    pub left: Option<Remaining>,
    /// The key, if one is required and was given.
    pub key: Option<Arc<Key>>,
    /// The bearer of an issuer's token, if one was given.
    pub bearer: Option<Arc<Bearer>>,
}

/// A request's credential.
enum Credential<'f> {
    /// The digest of a key.
    Key([u8; 32]),
    /// An issuer's token.
    Token(&'f Tokens, &'f str),
}

/// Admits requests.
pub struct Guard {
    users: Users,
    keys: bool,
    tokens: Option<Tokens>,
    rates: RateLimiter,
}

impl Guard {
    /// Checks keys of these users. `keys` says whether requests need a key or one of these issuer's `tokens`.
    pub fn new(users: Users, keys: bool, tokens: Option<Tokens>) -> Self {
        Self { users, keys, tokens, rates: RateLimiter::new(REMEMBERED) }
    }

    /// The caller, if that is known without a query. Adds the key to the context of a logged request.
    pub fn at_once(
        &self,
        fields: &HeaderMap,
        context: Option<&RequestContext>,
    ) -> Option<Result<Admitted, Failure>> {
        match self.credential(fields) {
            Ok(None) => Some(Ok(self.anonymous())),
            Ok(Some(Credential::Key(digest))) => {
                self.users.known_key(&digest).map(|key| self.let_in(key, context))
            }
            Ok(Some(Credential::Token(tokens, token))) => tokens.remembered(token).map(vouched_for),
            Err(failure) => Some(Err(failure)),
        }
    }

    /// The caller.
    ///
    /// # Errors
    /// 401 for an invalid key, 429 for one with too many requests.
    pub async fn admit(
        &self,
        fields: &HeaderMap,
        context: Option<&RequestContext>,
    ) -> Result<Admitted, Failure> {
        let digest = match self.credential(fields)? {
            None => return Ok(self.anonymous()),
            Some(Credential::Key(digest)) => digest,
            Some(Credential::Token(tokens, token)) => return vouched_for(bearer(tokens, token).await?),
        };
        self.let_in(self.known(&digest).await?, context)
    }

    /// The key with this digest, unless it is revoked.
    async fn known(&self, digest: &[u8; 32]) -> Result<Arc<Key>, Failure> {
        self.users.key_by_digest(digest).await?.ok_or_else(revoked)
    }

    /// Checks the key or token of an admitted request again. It counts as no further request.
    ///
    /// # Errors
    /// 401 if it is no longer valid.
    pub async fn still_admits(&self, fields: &HeaderMap) -> Result<(), Failure> {
        match self.credential(fields)? {
            None => Ok(()),
            Some(Credential::Key(digest)) => self.known(&digest).await.and_then(|key| unexpired(&key)),
            Some(Credential::Token(tokens, token)) => bearer(tokens, token).await.map(drop),
        }
    }

    /// The key or token of the request, if one is required and given.
    fn credential<'f>(&'f self, fields: &'f HeaderMap) -> Result<Option<Credential<'f>>, Failure> {
        if !self.keys {
            return Ok(None);
        }
        let Some(given) = fields.get(header::AUTHORIZATION) else { return Ok(None) };
        let given = given.to_str().unwrap_or_default().trim();
        let (scheme, token) = given.split_once(' ').unwrap_or((given, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            // The usual mistake is a key without the word.
            return Err(invalid("Authorization has to be the word Bearer, a space and the API key"));
        }
        if let Some(tokens) = self.tokens.as_ref().filter(|_| may_be(token.trim())) {
            return Ok(Some(Credential::Token(tokens, token.trim())));
        }
        let digest = Secret::digest_of(token.trim());
        digest
            .map(|digest| Some(Credential::Key(digest)))
            .ok_or_else(|| invalid("the API key is mistyped or cut off: this is none"))
    }

    fn anonymous(&self) -> Admitted {
        let caller = if self.keys { Caller::Nobody } else { Caller::Anybody };
        Admitted { caller, left: None, key: None, bearer: None }
    }

    fn let_in(&self, key: Arc<Key>, context: Option<&RequestContext>) -> Result<Admitted, Failure> {
        if let Some(context) = context {
            context.set_key(key.id);
        }
        unexpired(&key)?;
        let left = self.take(&key)?;
        self.users.note_use(&key);
        Ok(Admitted { caller: Caller::Key(key.id, key.scope), left, key: Some(key), bearer: None })
    }

    fn take(&self, key: &Key) -> Result<Option<Remaining>, Failure> {
        let Some(per_second) = key.rate else { return Ok(None) };
        let rate = rate(per_second, key.burst.unwrap_or(per_second));
        let taken = self.rates.take(key.id, rate, Instant::now());
        taken.map(|left| Some(Remaining::after(rate, left))).map_err(|exceeded| {
            let mut fields = HeaderMap::new();
            Remaining::exceeded(rate, exceeded).tell(&mut fields);
            let failure = Failure::from(Problem::new(429, "the key is used more often than it may be"))
                .with(header::RETRY_AFTER, HeaderValue::from(exceeded.retry_seconds().max(1)));
            fields.into_iter().fold(failure, |failure, (name, value)| match name {
                Some(name) => failure.with(name, value),
                None => failure,
            })
        })
    }
}

impl Caller {
    /// Checks whether this caller has the scope that a route requires.
    ///
    /// # Errors
    /// 401 without a key, 403 for a key with less.
    pub fn require(&self, scope: Option<Scope>) -> Result<(), Failure> {
        let Some(scope) = scope else { return Ok(()) };
        match self {
            Self::Anybody => Ok(()),
            Self::Key(_, granted) if *granted >= scope => Ok(()),
            // There are two scopes, and write includes read.
            Self::Key(..) => Err(Failure::from(Problem::forbidden(
                "the API key has the scope read; this takes one with the scope write",
            ))
            .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer error=\"insufficient_scope\""))),
            Self::Nobody => Err(Failure::from(Problem::unauthorized(
                "an API key is needed, as Authorization: Bearer and the key",
            ))
            .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        }
    }

    /// The key.
    pub fn key(&self) -> Option<i64> {
        match self {
            Self::Key(id, _) => Some(*id),
            _ => None,
        }
    }
}

/// The error for a key that the database does not have.
pub fn revoked() -> Failure {
    invalid("the API key is unknown or revoked")
}

fn unexpired(key: &Key) -> Result<(), Failure> {
    match key.expires_at.filter(|end| *end <= Timestamp::now()) {
        Some(end) => Err(invalid(&format!("the API key expired at {end}"))),
        None => Ok(()),
    }
}

/// The bearer of an issuer's valid token.
async fn bearer(tokens: &Tokens, token: &str) -> Result<Arc<Bearer>, Failure> {
    tokens.bearer(token).await.map_err(|refused| match refused {
        Refused::Unavailable(error) => {
            Failure::from(Problem::unavailable(error.to_string())).with(header::RETRY_AFTER, RETRY_AFTER)
        }
        refused => invalid(&refused.to_string()),
    })
}

/// Admits the bearer of an issuer's token.
fn vouched_for(bearer: Arc<Bearer>) -> Result<Admitted, Failure> {
    let scope = match bearer.scope {
        Some(jwt::Scope::Write) => Scope::Write,
        Some(jwt::Scope::Read) => Scope::Read,
        None => return Err(Problem::forbidden("the token is of nobody who may do anything here").into()),
    };
    Ok(Admitted { caller: Caller::Key(bearer.id, scope), left: None, key: None, bearer: Some(bearer) })
}

fn invalid(detail: &str) -> Failure {
    Failure::from(Problem::unauthorized(detail))
        .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer error=\"invalid_token\""))
}
