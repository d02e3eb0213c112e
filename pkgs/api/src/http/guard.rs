//! Who asks: API keys as bearer tokens (RFC 6750), their scopes and their rates.

use axum::extract::FromRequestParts;
use futures_util::FutureExt;
use http::HeaderMap;
use http::header::{self, HeaderValue};
use http::request::Parts;
use jiff::Timestamp;
use service::problem::Problem;

use super::Api;
use super::failure::Failure;
use super::rate::{Buckets, Left, Rate, seconds};
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
    pub left: Option<Left>,
}

/// Lets in who may come.
pub struct Guard {
    users: Users,
    keys: bool,
    buckets: Buckets,
}

impl Guard {
    /// For these users' keys; `keys`: whether it takes one.
    pub fn new(users: Users, keys: bool) -> Self {
        Self { users, keys, buckets: Buckets::new() }
    }

    /// Who asks, if that is known without asking the database.
    pub fn at_once(&self, fields: &HeaderMap) -> Option<Result<Admitted, Failure>> {
        // The future is ready at once where the key is cached; where it is not, it is dropped.
        self.admit(fields).now_or_never()
    }

    /// Who asks.
    ///
    /// # Errors
    /// 401 for what is no key, 429 for one that asks too often.
    pub async fn admit(&self, fields: &HeaderMap) -> Result<Admitted, Failure> {
        if !self.keys {
            return Ok(Admitted { caller: Caller::Anybody, left: None });
        }
        let Some(given) = fields.get(header::AUTHORIZATION) else {
            return Ok(Admitted { caller: Caller::Nobody, left: None });
        };
        let digest = bearer(given).and_then(Secret::digest_of).ok_or_else(unknown)?;
        let key = self.users.key_by_digest(&digest).await?.ok_or_else(unknown)?;
        if key.expires_at.is_some_and(|end| end <= Timestamp::now()) {
            return Err(unknown());
        }
        let left = self.take(&key)?;
        Ok(Admitted { caller: Caller::Key(key.id, key.scope), left })
    }

    fn take(&self, key: &Key) -> Result<Option<Left>, Failure> {
        let Some(per_second) = key.rate else { return Ok(None) };
        let rate = Rate { per_second, burst: key.burst.unwrap_or(per_second) };
        self.buckets.take(key.id, rate).map(Some).map_err(|exceeded| {
            let mut fields = HeaderMap::new();
            exceeded.left.tell(&mut fields);
            let failure = Failure::from(Problem::new(429, "the key is used more often than it may be"))
                .with(header::RETRY_AFTER, HeaderValue::from(seconds(exceeded.retry).max(1)));
            fields.into_iter().fold(failure, |failure, (name, value)| match name {
                Some(name) => failure.with(name, value),
                None => failure,
            })
        })
    }
}

impl Caller {
    /// Whether this caller has a scope.
    ///
    /// # Errors
    /// 401 where there is no key, 403 where it is for less.
    pub fn require(&self, scope: Scope) -> Result<(), Failure> {
        match self {
            Self::Anybody => Ok(()),
            Self::Key(_, granted) if *granted >= scope => Ok(()),
            Self::Key(..) => Err(Failure::from(Problem::forbidden("the key is for less than this")).with(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer error=\"insufficient_scope\""),
            )),
            Self::Nobody => Err(Failure::from(Problem::unauthorized("an API key is needed"))
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

/// A caller who may read.
pub struct Reader;

/// A caller who may write.
pub struct Writer(pub Caller);

impl FromRequestParts<Api> for Reader {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        caller(parts)?.require(Scope::Read)?;
        Ok(Self)
    }
}

impl FromRequestParts<Api> for Writer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        let caller = caller(parts)?;
        caller.require(Scope::Write)?;
        Ok(Self(caller.clone()))
    }
}

fn caller(parts: &Parts) -> Result<&Caller, Failure> {
    parts.extensions.get().ok_or_else(|| Problem::internal("nobody asked who asks").into())
}

fn unknown() -> Failure {
    Failure::from(Problem::unauthorized("the API key is unknown, revoked or expired"))
        .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer error=\"invalid_token\""))
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
