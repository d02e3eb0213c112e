//! The check of tokens: they need a signature by a key of the issuer, the right audience, and the right time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;

use crate::claims::Claims;
use crate::issuer::{Issuer, Unavailable};

/// The longest accepted token, in bytes. A request head with such a token still fits the services' limits.
pub const TOKEN_BYTES: usize = 12 << 10;

/// How far the clocks of the issuer and the service may differ.
pub const SKEW: Duration = Duration::from_secs(60);

/// The accepted algorithms. Their verification key does not allow signing.
const ALGORITHMS: [(&str, Algorithm); 3] =
    [("RS256", Algorithm::RS256), ("ES256", Algorithm::ES256), ("EdDSA", Algorithm::EdDSA)];

/// The accepted types of tokens (RFC 7519, RFC 9068): ID and access tokens. Other types, such as a logout token, are
/// refused.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Why a token isn't accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It isn't a JSON Web Token, or is too long.
    #[error("the token is no JSON Web Token, or too long")]
    Malformed,
    /// Its algorithm isn't accepted.
    #[error("the token is not signed by RS256, ES256 or EdDSA")]
    Algorithm,
    /// It is of another type, or requires an unknown extension.
    #[error("the token is not one to get in with")]
    Kind,
    /// The issuer has no such key.
    #[error("the token is signed by a key that its issuer does not have")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is from another issuer.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is for another audience.
    #[error("the token is not for this audience")]
    Audience,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// It isn't valid yet.
    #[error("the token is of a time to come")]
    Early,
    /// A claim is missing.
    #[error("the token says too little: {0}")]
    Incomplete(String),
    /// It belongs to another sign-in.
    #[error("the token is of another sign-in")]
    Nonce,
    /// The issuer can't be asked for its keys.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The header of a token, which says how to verify it.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    typ: Option<String>,
    /// Extensions that the verifier must understand (RFC 7515, section 4.1.11). None are supported.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// Whether a text may be a token: three parts, the first of which is JSON. The services' own keys never look like this.
#[must_use]
pub fn may_be(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Verifies a token for one of these audiences.
///
/// # Errors
/// When it isn't valid, or the issuer's keys aren't available.
pub fn verify<'a>(issuer: &'a Arc<Issuer>, audiences: &'a [String], token: &'a str) -> Verifying<'a> {
    // The future is boxed, so that its code is compiled here and not in every crate that verifies tokens.
    Box::pin(verified(issuer, audiences, token))
}

/// A future with claims.
pub type Verifying<'a> = Pin<Box<dyn Future<Output = Result<Claims, Refused>> + Send + 'a>>;

async fn verified(issuer: &Arc<Issuer>, audiences: &[String], token: &str) -> Result<Claims, Refused> {
    let header = header(token)?;
    let named = ALGORITHMS.iter().find(|(name, _)| *name == header.alg);
    let (_, algorithm) = named.ok_or(Refused::Algorithm)?;
    let typ = header.typ.as_deref().map(str::to_ascii_lowercase);
    if header.crit.is_some() || typ.is_some_and(|typ| !TYPES.contains(&typ.as_str())) {
        return Err(Refused::Kind);
    }
    let mut validation = Validation::new(*algorithm);
    validation.leeway = SKEW.as_secs();
    validation.validate_nbf = true;
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    validation.set_issuer(&[issuer.url().as_str()]);
    validation.set_audience(audiences);
    let known = issuer.knowing(header.kid.as_deref(), *algorithm).await?.ok_or(Refused::UnknownKey)?;
    let key = known.keys.find(header.kid.as_deref(), *algorithm).ok_or(Refused::UnknownKey)?;
    let claims = jsonwebtoken::decode::<Claims>(token, &key.decoding, &validation);
    let claims = claims.map_err(|error| refused(error.kind()))?.claims;
    if claims.sub.is_empty() {
        return Err(Refused::Incomplete("there is nobody in sub".to_owned()));
    }
    // The library would also accept an array of issuers that contains this one.
    if claims.iss != issuer.url().as_str() {
        return Err(Refused::Issuer);
    }
    if claims.iat.is_some_and(|made| made > now() + SKEW.as_secs()) {
        return Err(Refused::Early);
    }
    Ok(claims)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn header(token: &str) -> Result<Header, Refused> {
    if token.len() > TOKEN_BYTES || !may_be(token) {
        return Err(Refused::Malformed);
    }
    let (header, _) = token.split_once('.').ok_or(Refused::Malformed)?;
    let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| Refused::Malformed)?;
    serde_json::from_slice(&header).map_err(|_| Refused::Malformed)
}

fn refused(kind: &ErrorKind) -> Refused {
    match kind {
        ErrorKind::InvalidSignature => Refused::Signature,
        ErrorKind::InvalidIssuer => Refused::Issuer,
        ErrorKind::InvalidAudience => Refused::Audience,
        ErrorKind::ExpiredSignature => Refused::Expired,
        ErrorKind::ImmatureSignature => Refused::Early,
        ErrorKind::InvalidAlgorithm => Refused::Algorithm,
        ErrorKind::MissingRequiredClaim(claim) => Refused::Incomplete(format!("there is no {claim}")),
        ErrorKind::InvalidClaimFormat(claim) => {
            Refused::Incomplete(format!("{claim} is not as it has to be"))
        }
        // The position in the text is left out, since it means nothing to the author of the claims.
        ErrorKind::Json(error) => {
            let said = error.to_string();
            Refused::Incomplete(said.split(" at line ").next().unwrap_or_default().to_owned())
        }
        _ => Refused::Malformed,
    }
}
