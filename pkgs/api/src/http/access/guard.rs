//! Who asks: API keys as bearer tokens (RFC 6750), their scopes and their rates. A request takes one token from its key's
//! bucket, whatever it is for.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use jiff::Timestamp;
use service::access_log::RequestContext;
use service::problem::Problem;
use service::rate_limit::RateLimiter;

use crate::http::access::rate::{REMEMBERED, Remaining, rate};
use crate::http::failure::Failure;
use crate::keys::Secret;
use crate::store::{Key, Scope};
use crate::users::Users;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No keys are asked for.
    Anybody,
    /// Keys are, and none was given.
    Nobody,
    /// This key.
    Key(i64, Scope),
}

/// A caller, and what its bucket has left.
pub struct Admitted {
    /// Who.
    pub caller: Caller,
    /// Where the key has a rate.
    pub left: Option<Remaining>,
    /// The key, where one was given and asked for.
    pub key: Option<Arc<Key>>,
}

/// Lets in who may come.
pub struct Guard {
    users: Users,
    keys: bool,
    rates: RateLimiter,
}

impl Guard {
    /// For these users' keys; `keys`: whether it takes one.
    pub fn new(users: Users, keys: bool) -> Self {
        Self { users, keys, rates: RateLimiter::new(REMEMBERED) }
    }

    /// Who asks, if that is known without asking the database. What is known of a request that is logged is told its key.
    pub fn at_once(
        &self,
        fields: &HeaderMap,
        context: Option<&RequestContext>,
    ) -> Option<Result<Admitted, Failure>> {
        match self.credential(fields) {
            Ok(None) => Some(Ok(self.anonymous())),
            Ok(Some(digest)) => self.users.known_key(&digest).map(|key| self.let_in(key, context)),
            Err(failure) => Some(Err(failure)),
        }
    }

    /// Who asks.
    ///
    /// # Errors
    /// 401 for what is no key, 429 for one that asks too often.
    pub async fn admit(
        &self,
        fields: &HeaderMap,
        context: Option<&RequestContext>,
    ) -> Result<Admitted, Failure> {
        let Some(digest) = self.credential(fields)? else { return Ok(self.anonymous()) };
        let key = self.users.key_by_digest(&digest).await?;
        let key = key.ok_or_else(|| invalid("the API key is unknown or revoked"))?;
        self.let_in(key, context)
    }

    /// The digest of the key that is given, where one is asked for and given.
    fn credential(&self, fields: &HeaderMap) -> Result<Option<[u8; 32]>, Failure> {
        if !self.keys {
            return Ok(None);
        }
        let Some(given) = fields.get(header::AUTHORIZATION) else { return Ok(None) };
        let given = given.to_str().unwrap_or_default().trim();
        let (scheme, token) = given.split_once(' ').unwrap_or((given, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            // A key alone is the usual mistake.
            return Err(invalid("Authorization has to be the word Bearer, a space and the API key"));
        }
        let digest = Secret::digest_of(token.trim());
        digest.map(Some).ok_or_else(|| invalid("the API key is mistyped or cut off: this is none"))
    }

    fn anonymous(&self) -> Admitted {
        let caller = if self.keys { Caller::Nobody } else { Caller::Anybody };
        Admitted { caller, left: None, key: None }
    }

    fn let_in(&self, key: Arc<Key>, context: Option<&RequestContext>) -> Result<Admitted, Failure> {
        if let Some(context) = context {
            context.set_key(key.id);
        }
        if let Some(end) = key.expires_at.filter(|end| *end <= Timestamp::now()) {
            return Err(invalid(&format!("the API key expired at {end}")));
        }
        let left = self.take(&key)?;
        Ok(Admitted { caller: Caller::Key(key.id, key.scope), left, key: Some(key) })
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
    /// Whether this caller has the scope that a route takes.
    ///
    /// # Errors
    /// 401 where there is no key, 403 where it is for less.
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

fn invalid(detail: &str) -> Failure {
    Failure::from(Problem::unauthorized(detail))
        .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer error=\"invalid_token\""))
}
