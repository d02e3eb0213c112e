//! Signing in by OpenID Connect: where, as which client, and what a session has of it.
//!
//! The console asks the services by the ID token of whoever is signed in, as oauth2-proxy and kubectl do. So it holds no
//! key of its own that would be worth more than a person's; what somebody may, each service says for itself by their
//! groups (`--jwt-issuer`, `--jwt-write` and their like); and its audit log names them.
//!
//! The way back from the issuer begins at another site, so the browser sends no cookie of `SameSite=Strict` with it, which
//! the session's is and stays. What is to be known of who comes back is therefore in a cookie of its own: `Lax`, for ten
//! minutes, worth nothing without the `state` that belongs to it. And the answer is a page, not a redirect: one that goes
//! on to where they wanted by itself, which then is a request of our own site, with the session's cookie.

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use oidc::sign_in::{self, Arrival, LIFE, Registration, SignIn, is_redirect};
use oidc::{Issuer, IssuerUrl};
use service::settings;
use url::Url;

use crate::session::User;

/// Where browsers are sent to begin.
pub(crate) const BEGIN: &str = "/sign-in/oidc";

/// Where the issuer sends them back to.
pub(crate) const BACK: &str = "/sign-in/oidc/callback";

/// The longest cookie that is looked at, in bytes; browsers keep none that is longer.
const COOKIE_BYTES: usize = 4096;

/// Where people sign in who have no key.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OidcArgs {
    /// Lets people sign in at this OpenID Connect issuer, beside keys. linerate-links and linerate-api then have to take its
    /// tokens (their --jwt-issuer, with this client's id as --jwt-audience): what somebody may is what these give their groups.
    #[arg(
        long,
        value_name = "URL",
        requires = "oidc_client_id",
        conflicts_with = "token",
        help_heading = "OpenID Connect"
    )]
    pub oidc_issuer: Option<IssuerUrl>,

    /// The console's client id at the issuer, where https://CONSOLE/sign-in/oidc/callback is registered for it.
    #[arg(long, value_name = "ID", requires = "oidc_issuer", help_heading = "OpenID Connect")]
    pub oidc_client_id: Option<String>,

    /// The client's secret, by a variable or a credential, so that it is in no list of processes. Default: a public client,
    /// by PKCE alone.
    #[arg(long, value_name = "SECRET", value_parser = settings::secret::<ClientSecret>(), hide_env_values = true,
          requires = "oidc_issuer", help_heading = "OpenID Connect")]
    pub oidc_client_secret: Option<ClientSecret>,

    /// Where the issuer sends browsers back to, to the letter as registered: https://CONSOLE/sign-in/oidc/callback. Default: at
    /// the address by which the browser asked.
    #[arg(long, value_name = "URL", value_parser = redirect, requires = "oidc_issuer",
          help_heading = "OpenID Connect")]
    pub oidc_redirect_url: Option<String>,

    /// What the issuer is asked for; some, such as Dex, tell groups only where groups is among it.
    #[arg(long, value_name = "SCOPES", default_value = "openid profile email", value_parser = scopes,
          help_heading = "OpenID Connect")]
    pub oidc_scopes: String,

    /// The claim by which the console calls somebody; `sub` where a token has none of it.
    #[arg(long, value_name = "CLAIM", default_value = "preferred_username", help_heading = "OpenID Connect")]
    pub oidc_name_claim: String,

    /// Authorities that the issuer's certificate is signed by, in PEM; by default those of the system.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer", help_heading = "OpenID Connect")]
    pub oidc_cacert: Option<PathBuf>,
}

/// The secret of a client; shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(String);

impl std::fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientSecret")
    }
}

impl std::str::FromStr for ClientSecret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() { Err("it is empty") } else { Ok(Self(text.to_owned())) }
    }
}

fn redirect(text: &str) -> Result<String, String> {
    let ours = Url::parse(text).is_ok_and(|url| url.path() == BACK);
    if ours && is_redirect(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected https://CONSOLE{BACK}; http is taken for loopback addresses alone"))
    }
}

fn scopes(text: &str) -> Result<String, &'static str> {
    let openid = text.split_ascii_whitespace().any(|scope| scope == "openid");
    if openid { Ok(text.to_owned()) } else { Err("openid has to be among them") }
}

/// People cannot sign in at the issuer as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The authorities.
    #[error("--oidc-cacert: {0}")]
    Roots(String),
    /// Randomness.
    #[error(transparent)]
    SignIn(#[from] sign_in::Error),
}

/// Signs people in at an issuer.
pub(crate) struct SingleSignOn {
    pub(crate) sign_in: SignIn,
    /// Where the issuer is, for people.
    pub(crate) place: String,
    redirect: Option<String>,
    name_claim: String,
}

impl OidcArgs {
    /// What signs people in; none where no issuer is named.
    ///
    /// # Errors
    /// When the issuer's authorities cannot be read, or the system has no randomness.
    pub(crate) fn open(&self) -> Result<Option<SingleSignOn>, OpenError> {
        let (Some(url), Some(id)) = (&self.oidc_issuer, &self.oidc_client_id) else { return Ok(None) };
        let host = Url::parse(url.as_str()).ok().and_then(|url| url.host_str().map(str::to_owned));
        let issuer = Issuer::new(url.clone(), self.oidc_cacert.as_deref())
            .map_err(|error| OpenError::Roots(error.to_string()))?;
        let client = Registration {
            id: id.clone(),
            secret: self.oidc_client_secret.clone().map(|secret| secret.0),
            scopes: self.oidc_scopes.clone(),
        };
        Ok(Some(SingleSignOn {
            sign_in: SignIn::new(Arc::new(issuer), client)?,
            place: host.unwrap_or_else(|| url.to_string()),
            redirect: self.oidc_redirect_url.clone(),
            name_claim: self.oidc_name_claim.clone(),
        }))
    }
}

impl SingleSignOn {
    /// Where the issuer is to send a browser back to, which sent a form of ours with these fields. Its `Origin` has been
    /// found to be the name that it asks by; the issuer takes those that are registered there alone.
    pub(crate) fn redirect(&self, fields: &HeaderMap) -> Option<String> {
        let derived = || {
            let origin = fields.get(header::ORIGIN)?.to_str().ok()?;
            Some(format!("{origin}{BACK}")).filter(|url| is_redirect(url))
        };
        self.redirect.clone().or_else(derived)
    }

    /// Who has come back.
    pub(crate) fn user(&self, arrival: &Arrival) -> User {
        User { id: arrival.claims.sub.clone(), name: arrival.claims.name(&self.name_claim) }
    }
}

/// What the cookie of those on their way is called; see `visitor` for the prefix.
fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-linerate-sign-in" } else { "linerate-sign-in" }
}

/// What that cookie says.
pub(crate) fn cookie(fields: &HeaderMap, secure: bool) -> &str {
    let all = fields.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let said = pairs.find(|(name, _)| *name == cookie_name(secure)).map_or("", |(_, value)| value);
    if said.len() <= COOKIE_BYTES { said } else { "" }
}

/// That cookie; without a value it is taken back.
pub(crate) fn set_cookie(value: &str, secure: bool) -> HeaderValue {
    let (name, seconds) = (cookie_name(secure), if value.is_empty() { 0 } else { LIFE.as_secs() });
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    // Letters, digits and signs alone.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_come_back_to_the_console_by_tls_or_on_this_machine() {
        for (text, taken) in [
            ("https://console.example/sign-in/oidc/callback", true),
            ("http://localhost:8110/sign-in/oidc/callback", true),
            ("http://console.example/sign-in/oidc/callback", false),
            ("https://console.example/", false),
            ("https://console.example/sign-in/oidc/callback?next=a", false),
            ("/sign-in/oidc/callback", false),
        ] {
            assert_eq!(redirect(text).is_ok(), taken, "{text}");
        }
        assert!(scopes("openid groups").is_ok() && scopes("profile").is_err());
    }

    #[test]
    fn without_a_redirect_url_it_is_where_the_browser_asked() {
        let args = OidcArgs {
            oidc_issuer: Some("https://id.example/a".parse().expect("a URL")),
            oidc_client_id: Some("console".to_owned()),
            ..OidcArgs::default()
        };
        let console = args.open().expect("sound").expect("asked for");
        assert_eq!(console.place, "id.example");
        for (origin, expected) in [
            ("https://console.example", Some("https://console.example/sign-in/oidc/callback")),
            ("http://127.0.0.1:8110", Some("http://127.0.0.1:8110/sign-in/oidc/callback")),
            // A code would pass in the clear.
            ("http://console.example", None),
            ("null", None),
        ] {
            let fields = HeaderMap::from_iter([(header::ORIGIN, origin.parse().expect("a value"))]);
            assert_eq!(console.redirect(&fields).as_deref(), expected, "{origin}");
        }
        let fixed = "https://other.example/sign-in/oidc/callback";
        let args = OidcArgs { oidc_redirect_url: Some(fixed.to_owned()), ..args };
        let console = args.open().expect("sound").expect("asked for");
        assert_eq!(console.redirect(&HeaderMap::new()).as_deref(), Some(fixed));
    }

    #[test]
    fn the_cookie_of_those_on_their_way_is_read_as_it_is_set() {
        for secure in [false, true] {
            let set = set_cookie("a-b_c", secure);
            let set = set.to_str().expect("text");
            assert!(set.contains("; HttpOnly; SameSite=Lax; Max-Age=600"), "{set}");
            assert_eq!(set.ends_with("; Secure"), secure, "{set}");
            let (sent, _) = set.split_once(';').expect("attributes");
            let fields =
                HeaderMap::from_iter([(header::COOKIE, format!("x=y; {sent}").parse().expect("a value"))]);
            assert_eq!((cookie(&fields, secure), cookie(&fields, !secure)), ("a-b_c", ""));
        }
        assert!(set_cookie("", true).to_str().expect("text").contains("Max-Age=0"));
    }
}
