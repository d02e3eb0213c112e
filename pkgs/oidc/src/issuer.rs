//! An issuer: its metadata and keys. They are fetched when they are first needed, and again when they may have changed.
//!
//! A service starts even when its issuer is down, and continues with the keys it has. A client that sends tokens with
//! invented key ids makes the service ask the issuer at most once in 10 s, with one request at a time.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;
use serde::Deserialize;
use tokio::sync::{Mutex, OwnedMutexGuard};
use url::Url;

use crate::fetch::{Client, InvalidRoots};
use crate::keys::{KeySet, Published};
use crate::url::{IssuerUrl, endpoint};

/// Keys are fetched again after this time, so that a withdrawn key is no longer accepted.
const FRESH: Duration = Duration::from_secs(600);

/// Keys are used for this long while the issuer doesn't answer.
const KEPT: Duration = Duration::from_secs(86_400);

/// The shortest time between two requests to the issuer, whoever causes them.
const PAUSE: Duration = Duration::from_secs(10);

/// The issuer can't be asked, or its answer can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the issuer {issuer} cannot be asked: {why}")]
pub struct Unavailable {
    /// The issuer.
    pub issuer: String,
    /// The reason.
    pub why: String,
}

/// An issuer of tokens.
pub struct Issuer {
    url: IssuerUrl,
    pub(crate) client: Client,
    known: RwLock<Option<Arc<Known>>>,
    looks: Arc<Mutex<Looks>>,
    /// When the issuer last failed to answer; `None` once it has answered again.
    failed: RwLock<Option<Instant>>,
    fresh: Duration,
    pause: Duration,
}

/// What was fetched from an issuer.
pub(crate) struct Known {
    pub(crate) metadata: Metadata,
    pub(crate) keys: KeySet,
    at: Instant,
}

/// The last request to the issuer.
#[derive(Default)]
struct Looks {
    /// When it ended, and the error if it failed.
    last: Option<(Instant, Option<Unavailable>)>,
}

/// The issuer's metadata (OpenID Connect Discovery 1.0, section 3), as far as it is used in this crate.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    issuer: String,
    jwks_uri: String,
    /// `None` if the issuer only issues tokens to programs.
    #[serde(default)]
    pub(crate) authorization_endpoint: Option<String>,
    #[serde(default)]
    pub(crate) token_endpoint: Option<String>,
    /// Where people sign out (OpenID Connect RP-Initiated Logout 1.0).
    #[serde(default)]
    pub(crate) end_session_endpoint: Option<String>,
    #[serde(default)]
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether the issuer names itself when it sends a browser back (RFC 9207).
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

/// A future with what is known about an issuer.
type Looking<'a> = Pin<Box<dyn Future<Output = Result<Arc<Known>, Unavailable>> + Send + 'a>>;

impl Issuer {
    /// An issuer whose certificate is checked against the authorities in this PEM file, or those of the system. This
    /// sends no request yet.
    ///
    /// # Errors
    /// When the file has no certificates.
    pub fn new(url: IssuerUrl, authorities: Option<&Path>) -> Result<Self, InvalidRoots> {
        let client = Client::new(authorities)?;
        Ok(Self {
            url,
            client,
            known: RwLock::default(),
            looks: Arc::default(),
            failed: RwLock::default(),
            fresh: FRESH,
            pause: PAUSE,
        })
    }

    /// The same issuer with another pause between requests.
    #[cfg(test)]
    pub(crate) fn impatient(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// The same issuer with keys that are fetched again after another time.
    #[cfg(test)]
    pub(crate) fn forgetful(self, fresh: Duration) -> Self {
        Self { fresh, ..self }
    }

    /// The issuer's URL.
    #[must_use]
    pub fn url(&self) -> &IssuerUrl {
        &self.url
    }

    /// The issuer's metadata and keys.
    pub(crate) async fn known(self: &Arc<Self>) -> Result<Arc<Known>, Unavailable> {
        let asked = Instant::now();
        let Some(known) = self.last() else { return self.look(asked).await };
        let age = known.at.elapsed();
        if age < self.fresh {
            return Ok(known);
        }
        // Newer data is fetched in the background. Nobody waits for it; until then, the known data is used.
        if age < 2 * self.fresh || (age < KEPT && self.is_failing()) {
            if self.looks.try_lock().is_ok() {
                let issuer = Arc::clone(self);
                tokio::spawn(async move { drop(issuer.look(asked).await) });
            }
            return Ok(known);
        }
        // Nobody has asked for a while. A key may have been withdrawn meanwhile.
        match self.look(asked).await {
            Err(_) if age < KEPT => Ok(known),
            looked => looked,
        }
    }

    /// Whether the issuer did not answer lately, so that waiting for it is likely in vain.
    fn is_failing(&self) -> bool {
        let failed = *self.failed.read().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|at| at.elapsed() < self.fresh)
    }

    /// The issuer's metadata and keys, including the key with this id. `None` if the issuer has no such key.
    pub(crate) async fn knowing(
        self: &Arc<Self>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Option<Arc<Known>>, Unavailable> {
        let asked = Instant::now();
        let known = self.known().await?;
        if known.keys.find(id, algorithm).is_some() {
            return Ok(Some(known));
        }
        // It may be a new key. If the issuer can't be asked, the key stays unknown for now.
        let known = self.look(asked).await?;
        Ok(known.keys.find(id, algorithm).is_some().then_some(known))
    }

    fn last(&self) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the issuer. If another task has done so after `asked`, or less than a pause ago, returns that result
    /// instead.
    fn look(self: &Arc<Self>, asked: Instant) -> Looking<'_> {
        // The future is boxed, so that its code is compiled here and not in every crate that verifies tokens.
        Box::pin(self.looked(asked))
    }

    async fn looked(self: &Arc<Self>, asked: Instant) -> Result<Arc<Known>, Unavailable> {
        // Clients wait here in their own futures, so that those who leave leave nothing behind.
        let looks = Arc::clone(&self.looks).lock_owned().await;
        if let Some((at, failed)) = &looks.last
            && (*at > asked || at.elapsed() < self.pause)
        {
            return match (failed, self.last()) {
                (None, Some(known)) => Ok(known),
                (failed, _) => Err(failed.clone().unwrap_or_else(|| self.unavailable("nothing is known"))),
            };
        }
        // This client may leave before the issuer answers, and the next one should not wait again.
        tokio::spawn(Arc::clone(self).ask(looks))
            .await
            .unwrap_or_else(|_| Err(self.unavailable("nobody asks it any more")))
    }

    /// Asks the issuer, and remembers its answer.
    async fn ask(self: Arc<Self>, mut looks: OwnedMutexGuard<Looks>) -> Result<Arc<Known>, Unavailable> {
        let found = self.fetch().await.map_err(|why| self.unavailable(why));
        let (ended, error) = (Instant::now(), found.as_ref().err().cloned());
        *self.failed.write().unwrap_or_else(PoisonError::into_inner) = error.as_ref().map(|_| ended);
        looks.last = Some((ended, error));
        let found =
            found.inspect_err(|error| tracing::warn!(%error, "tokens are verified by the keys there are"))?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
        Ok(found)
    }

    fn unavailable(&self, why: impl Into<String>) -> Unavailable {
        Unavailable { issuer: self.url.to_string(), why: why.into() }
    }

    async fn fetch(&self) -> Result<Arc<Known>, String> {
        let metadata: Metadata = self.client.document(&self.endpoint(&self.url.discovery())?).await?;
        if metadata.issuer != self.url.as_str() {
            return Err(format!(
                "it calls itself {:?}, which has to be the same to the letter",
                metadata.issuer
            ));
        }
        let published: Published = self.client.document(&self.endpoint(&metadata.jwks_uri)?).await?;
        let keys = KeySet::new(published);
        if keys.len() == 0 {
            return Err("it has no key of RS256, ES256 or EdDSA".to_owned());
        }
        tracing::info!(issuer = %self.url, keys = keys.len(), "the issuer's keys are known");
        Ok(Arc::new(Known { metadata, keys, at: Instant::now() }))
    }

    /// Checks a URL from the issuer's metadata. It may have another host, but must be as safe to use as the issuer's
    /// own URL.
    pub(crate) fn endpoint(&self, text: &str) -> Result<Url, String> {
        let url = endpoint(text).ok_or_else(|| format!("{text:?} is none of HTTPS"))?;
        let weaker = url.scheme() == "http" && self.url.as_str().starts_with("https:");
        if weaker { Err(format!("{text:?} is none of HTTPS")) } else { Ok(url) }
    }
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Issuer").field(&self.url.as_str()).finish()
    }
}
