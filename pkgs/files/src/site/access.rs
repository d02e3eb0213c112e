//! Access control.
//!
//! Access rules match the requested path, the path of the file that is sent, and that path without an encoding's
//! suffix, so a file is protected under every name it has.
//!
//! - `auth = "staff"`: requires a password of `[realm.staff]`, by basic authentication.
//! - `signed = "links"`: requires a URL that was signed with `[key.links]` for its path, and has not expired.
//! - `referrers = ["https://example.org", "https://*.example.org", "none"]`: refuses requests from pages of other
//!   origins.

use std::sync::Arc;
use std::time::SystemTime;

use super::errors::HttpError;
use super::pattern::glob;
use super::secrets::Realm;
use super::signature::Key;
use crate::http::head::Request;

/// What a request needs to be answered with a file.
#[derive(Clone, Debug, Default)]
pub struct AccessControl {
    referrers: Vec<Referrers>,
    keys: Vec<Arc<Key>>,
    realms: Vec<Arc<Realm>>,
}

/// The origins whose pages may refer to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrers {
    /// Patterns, in lower case.
    origins: Vec<String>,
    /// Whether requests without a referrer are allowed.
    none: bool,
}

/// Why rules don't define access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It isn't an origin.
    #[error("{0:?} is no origin: those are like https://www.example.org, or none")]
    Origin(String),
    /// It isn't declared.
    #[error("there is no {0}")]
    Undeclared(String),
}

/// The decision on a request.
#[derive(Debug)]
pub enum AccessDecision {
    /// It is answered.
    Allowed,
    /// It is refused.
    Refused(HttpError),
    /// It needs a password for this realm.
    NeedsPassword(Arc<Realm>),
}

impl AccessControl {
    /// Adds conditions, so that requests have to meet all of them.
    pub fn add(&mut self, referrers: Option<&Referrers>, key: Option<&Arc<Key>>, realm: Option<&Arc<Realm>>) {
        if let Some(referrers) = referrers
            && !self.referrers.contains(referrers)
        {
            self.referrers.push(referrers.clone());
        }
        if let Some(key) = key
            && !self.keys.iter().any(|known| Arc::ptr_eq(known, key))
        {
            self.keys.push(Arc::clone(key));
        }
        if let Some(realm) = realm
            && !self.realms.iter().any(|known| Arc::ptr_eq(known, realm))
        {
            self.realms.push(Arc::clone(realm));
        }
    }

    /// Whether everybody has access.
    pub fn is_open(&self) -> bool {
        self.referrers.is_empty() && self.keys.is_empty() && self.realms.is_empty()
    }

    /// Whether a URL has to be signed.
    pub fn is_signed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether everybody with access here also has access there. A signature is for a single URL.
    pub fn covers(&self, other: &Self) -> bool {
        let has_realm = |realm| self.realms.iter().any(|own| Arc::ptr_eq(own, realm));
        other.keys.is_empty()
            && other.referrers.iter().all(|referrers| self.referrers.contains(referrers))
            && other.realms.iter().all(has_realm)
    }

    /// What caches have to know about answers that need access, as headers with their line ends, unless the headers
    /// `fields` say it already.
    pub fn fields_beside(&self, fields: &str) -> &'static str {
        let has =
            |line: &str| fields.match_indices(line).any(|(at, _)| at == 0 || fields[..at].ends_with("\r\n"));
        let varies = !self.referrers.is_empty() && !has("vary: referer\r\n");
        let is_needed = !self.keys.is_empty() || !self.realms.is_empty();
        let is_private = is_needed && !has("cache-control: ");
        match (varies, is_private) {
            (false, false) => "",
            (false, true) => "cache-control: private\r\n",
            (true, false) => "vary: referer\r\n",
            (true, true) => "vary: referer\r\ncache-control: private\r\n",
        }
    }

    /// Decides about a request for a path below the root at the time `now`. `passes` says whether its password is right
    /// for a realm.
    pub fn decide(
        &self,
        request: &Request<'_>,
        path: &[u8],
        now: SystemTime,
        mut passes: impl FnMut(&Arc<Realm>) -> bool,
    ) -> AccessDecision {
        let referrer = request.fields.referrer;
        if !self.referrers.iter().all(|referrers| referrers.has(referrer)) {
            return AccessDecision::Refused(HttpError::Referrer);
        }
        if self.is_signed() {
            let path = [b"/", path].concat();
            if !self.keys.iter().all(|key| key.is_signed(&path, request.query, now)) {
                return AccessDecision::Refused(HttpError::Unsigned);
            }
        }
        match self.realms.iter().find(|realm| !passes(realm)) {
            None => AccessDecision::Allowed,
            Some(realm) => AccessDecision::NeedsPassword(Arc::clone(realm)),
        }
    }
}

impl Referrers {
    /// Reads the list.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(list: &[String]) -> Result<Self, Error> {
        let mut referrers = Self { origins: Vec::new(), none: false };
        for origin in list {
            let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            match rest {
                None if origin == "none" => referrers.none = true,
                Some(host) if !host.is_empty() && !host.contains(['/', '@', '?', '#']) => {
                    referrers.origins.push(origin.to_ascii_lowercase());
                }
                _ => return Err(Error::Origin(origin.clone())),
            }
        }
        Ok(referrers)
    }

    /// Whether it has no conditions.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty() && !self.none
    }

    fn has(&self, referrer: Option<&[u8]>) -> bool {
        let Some(referrer) = referrer.filter(|referrer| !referrer.is_empty()) else { return self.none };
        let Some(origin) = std::str::from_utf8(referrer).ok().and_then(origin) else { return false };
        self.origins.iter().any(|known| glob(known.as_bytes(), origin.as_bytes()))
    }
}

/// The origin of a URL, in lower case: its scheme and authority, without a user.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(format!("{scheme}://{host}").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_referrer_is_judged_by_its_origin_alone() {
        let list = ["https://example.org", "https://*.example.org"].map(str::to_owned);
        let referrers = Referrers::new(&list).expect("origins");
        for (referrer, has) in [
            ("https://example.org/a?b", true),
            ("https://example.org", true),
            ("HTTPS://Example.ORG/", true),
            ("https://www.example.org/", true),
            ("https://user@example.org/", true),
            ("http://example.org/", false),
            ("https://example.org:8443/", false),
            ("https://example.org.evil.example/", false),
            ("https://evilexample.org/", false),
            ("https://evil.example/https://example.org/", false),
            ("https://evil.example/.example.org", false),
            ("https://evil.example?.example.org", false),
            ("https://example.org@evil.example/", false),
            ("https://evil.example\\.example.org/", false),
            ("example.org", false),
            ("", false),
        ] {
            assert_eq!(referrers.has(Some(referrer.as_bytes())), has, "{referrer}");
        }
        assert!(!referrers.has(None));
        assert!(Referrers::new(&["none".to_owned()]).expect("none").has(None));
    }

    #[test]
    fn caches_are_told_once_about_who_has_access() {
        let referrers = Referrers::new(&["none".to_owned()]).expect("none");
        let realm = Arc::new(Realm { name: "staff".to_owned(), users: Default::default() });
        let mut referred = AccessControl::default();
        referred.add(Some(&referrers), None, None);
        let mut both = AccessControl::default();
        both.add(Some(&referrers), None, Some(&realm));
        for (fields, of_referred, of_both) in [
            ("", "vary: referer\r\n", "vary: referer\r\ncache-control: private\r\n"),
            ("vary: referer\r\n", "", "cache-control: private\r\n"),
            ("x-a: b\r\ncache-control: no-cache\r\n", "vary: referer\r\n", "vary: referer\r\n"),
            ("cache-control: no-cache\r\nvary: referer\r\n", "", ""),
            // These are parts of other headers.
            (
                "x-vary: referer\r\nx-cache-control: a\r\n",
                "vary: referer\r\n",
                "vary: referer\r\ncache-control: private\r\n",
            ),
        ] {
            assert_eq!((referred.fields_beside(fields), both.fields_beside(fields)), (of_referred, of_both));
            assert_eq!(AccessControl::default().fields_beside(fields), "");
        }
    }
}
