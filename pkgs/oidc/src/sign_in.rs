//! Signing people in: the authorization code flow (OpenID Connect Core 1.0, section 3.1) with PKCE (RFC 7636).
//!
//! Nothing is stored about people who are at the issuer. So any number of them may start to sign in without filling
//! memory or displacing others. Their cookie contains what has to be known when they come back. State, nonce and the
//! code verifier are derived from that cookie and a secret of the process. Only a browser that started the sign-in
//! here, within [`LIFE`], can have the matching state.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{constant_time, digest, hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::StatusCode;
use http::header::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use url::form_urlencoded::{self, byte_serialize};

use crate::claims::Claims;
use crate::issuer::{Issuer, Known, Unavailable};
use crate::token::{self, Refused, now};
use crate::url::endpoint;

/// How long a person may take at the issuer: enough to find a second factor.
pub const LIFE: Duration = Duration::from_secs(600);

/// How many codes are redeemed for tokens at once.
const AT_ONCE: usize = 16;

/// The longest accepted code, state or cookie, in bytes.
const LONGEST: usize = 4096;

/// A client as it is registered at the issuer.
#[derive(Clone)]
pub struct Registration {
    /// The client's id.
    pub id: String,
    /// Its secret; `None` for a public client, which only has PKCE.
    pub secret: Option<String>,
    /// The requested scopes, including `openid`.
    pub scopes: String,
}

/// Signs people in at an issuer.
pub struct SignIn {
    issuer: Arc<Issuer>,
    client: Registration,
    secret: hmac::Key,
    redeeming: Semaphore,
}

/// The start of a sign-in, for the browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The URL to which the browser is redirected.
    pub location: String,
    /// The value of the browser's cookie until it comes back.
    pub cookie: String,
}

/// What a browser brings back from the issuer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Return<'a> {
    /// The browser's cookie.
    pub cookie: &'a str,
    /// The query's `state`.
    pub state: &'a str,
    /// The query's `code`.
    pub code: &'a str,
    /// The query's `iss`, if there is one (RFC 9207).
    pub iss: Option<&'a str>,
    /// The query's `error`, if there is one.
    pub error: Option<&'a str>,
}

/// The end of a successful sign-in.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The ID token.
    pub token: String,
    /// Its claims.
    pub claims: Claims,
    /// The page to continue to, as given at the start.
    pub next: String,
}

/// Why a person couldn't be signed in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The sign-in was not started here in this browser, or too long ago.
    #[error("this sign-in was not begun in this browser, or too long ago: begin once more")]
    Unknown,
    /// The issuer refused.
    #[error("the issuer refused: {0}")]
    Denied(String),
    /// There are too many sign-ins at once.
    #[error("too many people sign in just now: begin once more")]
    Busy,
    /// The issuer can't be used.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The ID token isn't valid.
    #[error("the issuer's answer is not taken: {0}")]
    Token(Refused),
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Randomness,
}

/// The content of a cookie. It isn't secret. A secret of the process ties it to the state.
#[derive(Deserialize, Serialize)]
struct Begun {
    /// A random text.
    id: String,
    /// When the sign-in began, in seconds since 1970.
    at: u64,
    /// The URL to which the issuer sends the browser back.
    redirect: String,
    /// The page to which the browser continues from there.
    next: String,
}

impl SignIn {
    /// Makes a sign-in at this issuer, as this client.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new(issuer: Arc<Issuer>, client: Registration) -> Result<Self, Error> {
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let secret = secret.map_err(|_| Error::Randomness)?;
        Ok(Self { issuer, client, secret, redeeming: Semaphore::new(AT_ONCE) })
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Starts a sign-in: the browser goes to the issuer, comes back to `redirect`, and then continues to `next`.
    ///
    /// # Errors
    /// When the issuer isn't available, or people can't sign in there.
    pub async fn depart(&self, redirect: &str, next: &str) -> Result<Departure, Error> {
        let known = self.issuer.known().await?;
        let place = known.metadata.authorization_endpoint.as_deref();
        let place = place.ok_or_else(|| self.strange("it has nowhere to sign in at"))?;
        let mut place = self.issuer.endpoint(place).map_err(|why| self.strange(why))?;
        let mut id = [0; 24];
        rand::fill(&mut id).map_err(|_| Error::Randomness)?;
        let next = if next.len() <= LONGEST / 4 { next } else { "/" };
        let begun = Begun {
            id: URL_SAFE_NO_PAD.encode(id),
            at: now(),
            redirect: redirect.to_owned(),
            next: next.to_owned(),
        };
        let cookie = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&begun).unwrap_or_default());
        let verifier = self.made_of(&cookie, "verifier");
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()));
        place
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", redirect)
            .append_pair("scope", &self.client.scopes)
            .append_pair("state", &self.made_of(&cookie, "state"))
            .append_pair("nonce", &self.made_of(&cookie, "nonce"))
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(Departure { location: place.into(), cookie })
    }

    /// The issuer's page for signing out, for a person who has signed out here. The issuer asks for confirmation.
    /// `None` if the issuer has no such page.
    ///
    /// # Errors
    /// When the issuer isn't available, or the URL of that page is invalid.
    pub async fn leave(&self) -> Result<Option<String>, Error> {
        let known = self.issuer.known().await?;
        let Some(place) = known.metadata.end_session_endpoint.as_deref() else { return Ok(None) };
        let mut place = self.issuer.endpoint(place).map_err(|why| self.strange(why))?;
        place.query_pairs_mut().append_pair("client_id", &self.client.id);
        Ok(Some(place.into()))
    }

    /// Finishes the sign-in of a browser that comes back from the issuer.
    ///
    /// # Errors
    /// When the sign-in was not started here, or the issuer refuses it.
    pub async fn arrive(&self, back: Return<'_>) -> Result<Arrival, Error> {
        let begun = self.begun(back).ok_or(Error::Unknown)?;
        if let Some(error) = back.error {
            return Err(Error::Denied(error.chars().take(200).collect()));
        }
        let _permit = self.redeeming.try_acquire().map_err(|_| Error::Busy)?;
        let known = self.issuer.known().await?;
        // The code may come from another issuer, and must not be sent to this one (RFC 9207).
        let required = known.metadata.authorization_response_iss_parameter_supported;
        if back.iss.map_or(required, |iss| iss != self.issuer.url().as_str()) {
            return Err(Error::Token(Refused::Issuer));
        }
        let token = self.redeem(&known, &begun, back).await?;
        let audience = [self.client.id.clone()];
        let claims =
            token::verify(&self.issuer, &audience, &token).await.map_err(|refused| match refused {
                Refused::Unavailable(error) => Error::Unavailable(error),
                refused => Error::Token(refused),
            })?;
        let nonce = self.made_of(back.cookie, "nonce");
        if !claims.nonce.as_deref().is_some_and(|given| same(given, &nonce)) {
            return Err(Error::Token(Refused::Nonce));
        }
        if claims.azp.as_ref().is_some_and(|party| *party != self.client.id) {
            return Err(Error::Token(Refused::Audience));
        }
        Ok(Arrival { token, claims, next: begun.next })
    }

    /// The start of this sign-in, if it was here, in this browser, and not too long ago.
    fn begun(&self, back: Return<'_>) -> Option<Begun> {
        if [back.cookie, back.state, back.code].iter().any(|text| text.len() > LONGEST)
            || !same(back.state, &self.made_of(back.cookie, "state"))
        {
            return None;
        }
        let begun: Begun = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(back.cookie).ok()?).ok()?;
        (now().abs_diff(begun.at) <= LIFE.as_secs()).then_some(begun)
    }

    /// Redeems a code for an ID token.
    async fn redeem(&self, known: &Known, begun: &Begun, back: Return<'_>) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Tokens {
            id_token: String,
        }
        #[derive(Deserialize)]
        struct No {
            error: String,
        }
        let place = known.metadata.token_endpoint.as_deref();
        let place = place.ok_or_else(|| self.strange("it has nothing that gives tokens"))?;
        let place = self.issuer.endpoint(place).map_err(|why| self.strange(why))?;
        let verifier = self.made_of(back.cookie, "verifier");
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", back.code),
            ("redirect_uri", &begun.redirect),
            ("code_verifier", &verifier),
        ];
        let methods = known.metadata.token_endpoint_auth_methods_supported.as_deref();
        let (id, secret) = (&self.client.id, self.client.secret.as_deref());
        let authorization = match secret.filter(|_| by_basic(methods)) {
            Some(secret) => Some(basic(id, secret)?),
            None => {
                fields.push(("client_id", id));
                fields.extend(secret.map(|secret| ("client_secret", secret)));
                None
            }
        };
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let answer = self.issuer.client.form(&place, authorization, form).await;
        let answer = answer.map_err(|why| self.strange(why))?;
        if answer.status != StatusCode::OK {
            let why =
                serde_json::from_slice(&answer.body).map_or(answer.status.to_string(), |no: No| no.error);
            return Err(Error::Denied(why.chars().take(200).collect()));
        }
        let tokens: Result<Tokens, _> = serde_json::from_slice(&answer.body);
        Ok(tokens.map_err(|_| self.strange("it gives no ID token"))?.id_token)
    }

    /// Derives a value from a cookie. Its owner can't compute it. It has 43 characters of base64url.
    fn made_of(&self, cookie: &str, what: &str) -> String {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(what.as_bytes());
        context.update(b"\0");
        context.update(cookie.as_bytes());
        URL_SAFE_NO_PAD.encode(context.sign())
    }

    fn strange(&self, why: impl Into<String>) -> Error {
        Error::Unavailable(Unavailable { issuer: self.issuer.url().to_string(), why: why.into() })
    }
}

/// Whether an issuer may send browsers back to this URL: it needs TLS or a loopback address, and has no query.
#[must_use]
pub fn is_redirect(text: &str) -> bool {
    endpoint(text).is_some_and(|url| url.query().is_none())
}

fn same(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

/// Whether the client's secret is sent in a header, which is the default (OpenID Connect Core 1.0, section 9).
fn by_basic(methods: Option<&[String]>) -> bool {
    methods.is_none_or(|methods| {
        methods.iter().any(|method| method == "client_secret_basic")
            || !methods.iter().any(|method| method == "client_secret_post")
    })
}

/// The header with the client's id and secret. Each is first encoded as in a form (RFC 6749, section 2.3.1).
fn basic(id: &str, secret: &str) -> Result<HeaderValue, Error> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
    let mut value = HeaderValue::from_str(&format!("Basic {pair}")).map_err(|_| Error::Unknown)?;
    value.set_sensitive(true);
    Ok(value)
}
