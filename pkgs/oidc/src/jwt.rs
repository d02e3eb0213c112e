//! Services take tokens of an issuer as bearer tokens, beside keys of their own.

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

/// Tokens that are remembered as good, so that a signature is not computed for each request.
const KNOWN: usize = 1024;

/// For how long they are: so much longer is a key taken that its issuer withdrew.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Which tokens are taken as bearer tokens beside keys, and what for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JwtArgs {
    /// Takes tokens of this OpenID Connect issuer as bearer tokens, beside keys: its URL, as tokens name it in `iss`. Its keys
    /// are found by discovery, and found anew when they change; RS256, ES256 and EdDSA are taken.
    #[arg(long, value_name = "URL", requires = "jwt_audience", help_heading = "JSON Web Tokens")]
    pub jwt_issuer: Option<IssuerUrl>,

    /// For whom tokens have to be (`aud`): this service's own name at the issuer, or the console's client id, whose users'
    /// tokens are then taken. May be repeated.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "jwt_issuer",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_audience: Vec<String>,

    /// The claim that says what a token is for: an array of texts, such as groups, or one text with spaces, such as scope.
    #[arg(long, value_name = "CLAIM", default_value = "groups", help_heading = "JSON Web Tokens")]
    pub jwt_scope_claim: String,

    /// What of it may write, and read: a group, or a scope. May be repeated.
    #[arg(
        long,
        value_name = "VALUE",
        value_delimiter = ',',
        requires = "jwt_issuer",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_write: Vec<String>,

    /// What of it may read alone. May be repeated.
    #[arg(
        long,
        value_name = "VALUE",
        value_delimiter = ',',
        requires = "jwt_issuer",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_read: Vec<String>,

    /// The claim that logs name somebody by: one that they cannot change themselves; `sub` where a token has none of it.
    #[arg(
        long,
        value_name = "CLAIM",
        default_value = "preferred_username",
        help_heading = "JSON Web Tokens"
    )]
    pub jwt_name_claim: String,

    /// Authorities that the issuer's certificate is signed by, in PEM; by default those of the system.
    #[arg(long, value_name = "FILE", requires = "jwt_issuer", help_heading = "JSON Web Tokens")]
    pub jwt_cacert: Option<PathBuf>,
}

/// Tokens cannot be taken as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody could do anything.
    #[error("--jwt-issuer needs --jwt-write or --jwt-read: no token is for anything without")]
    Useless,
    /// The authorities.
    #[error("--jwt-cacert: {0}")]
    Roots(#[from] InvalidRoots),
}

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// To read.
    Read,
    /// To read and write.
    Write,
}

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// A number that is theirs at this issuer for ever: below zero, where no key of a service has one.
    pub id: i64,
    /// What logs call them.
    pub name: String,
    /// What they may; nothing where none.
    pub scope: Option<Scope>,
}

/// Tells whose tokens are. Clones share.
#[derive(Clone)]
pub struct Tokens(Arc<Shared>);

struct Shared {
    issuer: Arc<Issuer>,
    args: JwtArgs,
    known: Mutex<HashMap<[u8; 32], Known>>,
}

struct Known {
    bearer: Arc<Bearer>,
    /// The token's end, or that of remembering it.
    until: Instant,
}

impl JwtArgs {
    /// What takes these tokens; none where none are to be.
    ///
    /// # Errors
    /// When they would be for nothing, or the issuer cannot be known.
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

    /// Whose token this is.
    ///
    /// # Errors
    /// When it is not good, or the issuer's keys are not to be had.
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

    /// Whose token this is, if that was found out a moment ago.
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

/// A number below zero, of which there are so many that no two people have the same.
fn number(of: &[&str]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(of);
    !(i64::from_le_bytes([a, b, c, d, e, f, g, h]) & i64::MAX)
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.issuer).finish()
    }
}
