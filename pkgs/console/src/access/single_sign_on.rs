//! Signing in with OpenID Connect: the issuer, the client, and the content of a session.
//!
//! The console sends the services the ID token of the user who signed in, as oauth2-proxy and kubectl do. The console
//! therefore holds no key with more rights than that user. Each service decides by the user's groups what the user may
//! do (`--jwt-issuer`, `--jwt-write` and so on), and its audit log names the user.
//!
//! The redirect back from the issuer is a cross-site request. The browser therefore doesn't send cookies with
//! `SameSite=Strict`, such as the session's. The data that is needed about a returning user is in a separate cookie: it
//! is `Lax`, valid for ten minutes, and useless without the matching `state`. The answer is a page instead of a
//! redirect. It continues automatically to the page that the user wanted; that is a same-site request, with the
//! session's cookie.

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use oidc::sign_in::{self, Arrival, LIFE, Registration, SignIn, is_redirect};
use oidc::{Issuer, IssuerUrl};
use service::settings;
use url::Url;

use crate::session::User;

/// The path where signing in starts.
pub(crate) const BEGIN: &str = "/sign-in/oidc";

/// The path that the issuer sends browsers back to.
pub(crate) const BACK: &str = "/sign-in/oidc/callback";

/// The longest cookie that is read, in bytes. Browsers store no longer one.
const COOKIE_BYTES: usize = 4096;

/// Where people without a key sign in.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OidcArgs {
    /// Lets people sign in at this OpenID Connect issuer, in addition to keys. linerate-links and linerate-api must
    /// accept its tokens (their --jwt-issuer, with this client's id as --jwt-audience); they decide what a user may do
    /// by the user's groups.
    #[arg(
        long,
        value_name = "URL",
        requires = "oidc_client_id",
        conflicts_with = "token",
        help_heading = "OpenID Connect"
    )]
    pub oidc_issuer: Option<IssuerUrl>,

    /// The console's client id at the issuer, registered with https://CONSOLE/sign-in/oidc/callback.
    #[arg(long, value_name = "ID", requires = "oidc_issuer", help_heading = "OpenID Connect")]
    pub oidc_client_id: Option<String>,

    /// The client's secret, in a variable or a credential, so that no list of processes shows it. Default: a public
    /// client, with PKCE only.
    #[arg(long, value_name = "SECRET", value_parser = settings::secret::<ClientSecret>(), hide_env_values = true,
          requires = "oidc_issuer", help_heading = "OpenID Connect")]
    pub oidc_client_secret: Option<ClientSecret>,

    /// The URL that the issuer sends browsers back to, exactly as registered: https://CONSOLE/sign-in/oidc/callback.
    /// Default: at the address that the browser used.
    #[arg(long, value_name = "URL", value_parser = redirect, requires = "oidc_issuer",
          help_heading = "OpenID Connect")]
    pub oidc_redirect_url: Option<String>,

    /// The scopes to request from the issuer. Some issuers, such as Dex, only send groups if groups is among them.
    #[arg(long, value_name = "SCOPES", default_value = "openid profile email", value_parser = scopes,
          help_heading = "OpenID Connect")]
    pub oidc_scopes: String,

    /// The claim that the console shows as a user's name; `sub` if a token lacks it.
    #[arg(long, value_name = "CLAIM", default_value = "preferred_username", help_heading = "OpenID Connect")]
    pub oidc_name_claim: String,

    /// Authorities that sign the issuer's certificate, in PEM. Default: the system's.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer", help_heading = "OpenID Connect")]
    pub oidc_cacert: Option<PathBuf>,
}

/// A client's secret, which is never shown.
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

/// Why signing in at the issuer cannot work.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The certificate authorities can't be read.
    #[error("--oidc-cacert: {0}")]
    Roots(String),
    /// Signing in can't be prepared.
    #[error(transparent)]
    SignIn(#[from] sign_in::Error),
}

/// Signs people in at an issuer.
pub(crate) struct SingleSignOn {
    pub(crate) sign_in: SignIn,
    /// The issuer's address, for people.
    pub(crate) place: String,
    redirect: Option<String>,
    name_claim: String,
}

impl OidcArgs {
    /// Prepares signing in; none if no issuer is configured.
    ///
    /// # Errors
    /// When the issuer's certificate authorities can't be read, or the system has no randomness.
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
    /// The URL that the issuer redirects the browser back to. The fields are those of the form's request; its `Origin`
    /// has been checked to match the host. The issuer accepts only registered URLs.
    pub(crate) fn redirect(&self, fields: &HeaderMap) -> Option<String> {
        let derived = || {
            let origin = fields.get(header::ORIGIN)?.to_str().ok()?;
            Some(format!("{origin}{BACK}")).filter(|url| is_redirect(url))
        };
        self.redirect.clone().or_else(derived)
    }

    /// The user who has come back from the issuer.
    pub(crate) fn user(&self, arrival: &Arrival) -> User {
        User { id: arrival.claims.sub.clone(), name: arrival.claims.name(&self.name_claim) }
    }
}

/// The name of the cookie of users who are at the issuer; see `visitor` for the prefix.
fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-linerate-sign-in" } else { "linerate-sign-in" }
}

/// The value of the cookie; empty if it is absent or too long.
pub(crate) fn cookie(fields: &HeaderMap, secure: bool) -> &str {
    let all = fields.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let said = pairs.find(|(name, _)| *name == cookie_name(secure)).map_or("", |(_, value)| value);
    if said.len() <= COOKIE_BYTES { said } else { "" }
}

/// The header that sets the cookie. An empty value deletes it.
pub(crate) fn set_cookie(value: &str, secure: bool) -> HeaderValue {
    let (name, seconds) = (cookie_name(secure), if value.is_empty() { 0 } else { LIFE.as_secs() });
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    // It contains only letters, digits and signs.
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
            // The authorization code would be sent without TLS.
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
