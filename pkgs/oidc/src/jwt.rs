//! Accepts an issuer's tokens as bearer tokens, in addition to a service's own keys.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;

use crate::claims::Claims;
use crate::fetch::InvalidRoots;
use crate::issuer::Issuer;
use crate::token::{self, Refused, SKEW};
use crate::url::IssuerUrl;

/// How many tokens are remembered as valid, so that not every request verifies a signature.
const KNOWN: usize = 1024;

/// How long a token is remembered. A key that its issuer withdrew is accepted that much longer.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Which tokens are accepted as bearer tokens in addition to keys, and for what.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JwtArgs {
    /// Accepts tokens of this OpenID Connect issuer as bearer tokens, in addition to keys: its URL, as tokens name it
    /// in `iss`. Its keys are found by discovery, and again when they change. RS256, ES256 and EdDSA are accepted.
    #[arg(long, value_name = "URL", requires = "jwt_audience", help_heading = "JSON Web Tokens")]
    pub jwt_issuer: Option<IssuerUrl>,

    /// The audience that tokens must have (`aud`): this service's own name at the issuer, or the console's client id,
    /// whose users' tokens are then accepted. May be repeated.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "jwt_issuer",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_audience: Vec<String>,

    /// The claim that says what a token is for: an array of texts, such as groups, or a text with spaces, such as
    /// scope.
    #[arg(long, value_name = "CLAIM", default_value = "groups", help_heading = "JSON Web Tokens")]
    pub jwt_scope_claim: String,

    /// A value of that claim, a group or a scope, that may write and read. May be repeated.
    #[arg(
        long,
        value_name = "VALUE",
        value_delimiter = ',',
        requires = "jwt_issuer",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_write: Vec<String>,

    /// A value of that claim that may only read. May be repeated.
    #[arg(
        long,
        value_name = "VALUE",
        value_delimiter = ',',
        requires = "jwt_issuer",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_read: Vec<String>,

    /// The claim that logs show as a user's name; choose one that users cannot change. `sub` if a token lacks it.
    #[arg(
        long,
        value_name = "CLAIM",
        default_value = "preferred_username",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_name_claim: String,

    /// Authorities that sign the issuer's certificate, in PEM. Default: the system's.
    #[arg(long, value_name = "FILE", requires = "jwt_issuer", help_heading = "JSON Web Tokens")]
    pub jwt_cacert: Option<PathBuf>,
}

/// Why tokens cannot be accepted as configured.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No token would have any rights.
    #[error("--jwt-issuer needs --jwt-write or --jwt-read: no token is for anything without")]
    Useless,
    /// The authorities cannot be used.
    #[error("--jwt-cacert: {0}")]
    Roots(#[from] InvalidRoots),
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// The bearer of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The bearer's permanent number at this issuer. It is negative, unlike the id of every key of a service.
    pub id: i64,
    /// The bearer's name in logs.
    pub name: String,
    /// The bearer's rights; `None` if there are none.
    pub scope: Option<Scope>,
}

/// Finds the bearers of tokens. Clones share the state.
#[derive(Clone)]
pub struct Tokens(Arc<Shared>);

struct Shared {
    issuer: Arc<Issuer>,
    args: JwtArgs,
    known: Mutex<HashMap<[u8; 32], Known>>,
}

struct Known {
    bearer: Arc<Bearer>,
    /// When the token expires, or is forgotten.
    until: Instant,
}

impl JwtArgs {
    /// Accepts tokens as configured. Returns `None` if no issuer is given.
    ///
    /// # Errors
    /// When no token would have any rights, or the authorities cannot be used.
    pub fn open(&self) -> Result<Option<Tokens>, OpenError> {
        let Some(url) = &self.jwt_issuer else { return Ok(None) };
        if self.jwt_write.is_empty() && self.jwt_read.is_empty() {
            return Err(OpenError::Useless);
        }
        let issuer = Issuer::new(url.clone(), self.jwt_cacert.as_deref())?;
        Ok(Some(Tokens::new(Arc::new(issuer), self.clone())))
    }

    fn scope(&self, claims: &Claims) -> Option<Scope> {
        let has = |values: &[String]| {
            claims.texts(&self.jwt_scope_claim).any(|given| values.iter().any(|value| value == given))
        };
        if has(&self.jwt_write) { Some(Scope::Write) } else { has(&self.jwt_read).then_some(Scope::Read) }
    }
}

impl Tokens {
    pub(crate) fn new(issuer: Arc<Issuer>, args: JwtArgs) -> Self {
        Self(Arc::new(Shared { issuer, args, known: Mutex::default() }))
    }

    /// The bearer of this token.
    ///
    /// # Errors
    /// When it is invalid, or the issuer's keys are unavailable.
    pub async fn bearer(&self, token: &str) -> Result<Arc<Bearer>, Refused> {
        if let Some(bearer) = self.remembered(token) {
            return Ok(bearer);
        }
        let claims = token::verify(&self.0.issuer, &self.0.args.jwt_audience, token).await?;
        let scope = self.0.args.scope(&claims);
        let id = number(&[self.0.issuer.url().as_str(), "\0", &claims.sub]);
        let bearer = Arc::new(Bearer { id, name: claims.name(&self.0.args.jwt_name_claim), scope });
        let left =
            Duration::from_secs(claims.exp.saturating_add(SKEW.as_secs()).saturating_sub(token::now()));
        self.0.remember(digest(&[token]), &bearer, left.min(REMEMBERED));
        Ok(bearer)
    }

    /// The bearer of this token, if it was verified a moment ago.
    #[must_use]
    pub fn remembered(&self, token: &str) -> Option<Arc<Bearer>> {
        let digest = digest(&[token]);
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&digest).filter(|known| Instant::now() < known.until).map(|known| Arc::clone(&known.bearer))
    }
}

impl Shared {
    fn remember(&self, digest: [u8; 32], bearer: &Arc<Bearer>, time: Duration) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.retain(|_, known| now < known.until);
            if known.len() >= KNOWN {
                known.clear();
            }
        }
        known.insert(digest, Known { bearer: Arc::clone(bearer), until: now + time });
    }
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part.as_bytes()));
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// A negative number derived from these texts. There are so many values that no two people share one.
fn number(of: &[&str]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(of);
    !(i64::from_le_bytes([a, b, c, d, e, f, g, h]) & i64::MAX)
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.issuer).finish()
    }
}
