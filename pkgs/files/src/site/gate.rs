//! Who may have a file.
//!
//! What rules say here goes by the path that is asked for, by that of the file that is sent, and by that without what a
//! coding beside it ends with: who has to pass for a file has to, by whatever name it goes.
//!
//! - `auth = "staff"`: who has a password of `[realm.staff]`, by basic authentication.
//! - `signed = "links"`: who has a URL that was signed with `[key.links]`, by its path, until it expires.
//! - `referrers = ["https://example.org", "https://*.example.org", "none"]`: pages of other origins may not refer to it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use service::password;

use super::pattern::glob;
use super::refusal::Refusal;
use super::rules::Rules;
use super::signature::{Key, MIN_KEY_BYTES};
use crate::http::head::Request;

/// What has to be so for a request to be answered with a file.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    referrers: Vec<Referrers>,
    keys: Vec<Arc<Key>>,
    realms: Vec<Arc<Realm>>,
}

/// The origins whose pages may refer to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrers {
    /// Patterns, in lower case.
    origins: Vec<String>,
    /// Whether what nobody refers to may be had.
    none: bool,
}

/// Those who have a password.
#[derive(Debug)]
pub struct Realm {
    /// What browsers show of it.
    pub name: String,
    /// By name, their hashes.
    pub users: BTreeMap<String, Arc<str>>,
}

/// Realms and keys, by name.
#[derive(Debug, Default)]
pub struct Secrets {
    realms: BTreeMap<String, Arc<Realm>>,
    keys: BTreeMap<String, Arc<Key>>,
}

/// What rules say of a realm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RealmRule {
    /// By name, argon2 hashes, as `linerate-files password` makes them.
    #[serde(default)]
    pub users: BTreeMap<String, String>,
    /// A file with more of them, NAME:HASH a line; `#` begins a comment.
    pub file: Option<PathBuf>,
}

/// What rules say of a key.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KeyRule {
    /// The file with its bytes.
    pub file: PathBuf,
}

/// Why rules do not say who may have a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No origin.
    #[error("{0:?} is no origin: those are like https://www.example.org, or none")]
    Origin(String),
    /// What is not declared.
    #[error("there is no {0}")]
    Undeclared(String),
}

/// Why there are no secrets to go by.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A name with characters no name has.
    #[error("{0:?} is no name: those have letters, digits, -, _ and .")]
    Name(String),
    /// A user's.
    #[error("realm {realm}: {user:?} has no argon2 hash of bounded cost; linerate-files password makes one")]
    Hash {
        /// Where.
        realm: String,
        /// Whose.
        user: String,
    },
    /// A realm nobody is in.
    #[error("realm {0}: there are no users")]
    NoUsers(String),
    /// A key that could be guessed.
    #[error("{}: a key has at least {MIN_KEY_BYTES} bytes", .0.display())]
    Short(PathBuf),
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Judgement {
    /// It is answered.
    Passes,
    /// It is refused.
    Refused(Refusal),
    /// It is for somebody in this realm.
    Asks(Arc<Realm>),
}

impl Secrets {
    /// Reads what rules name; paths are those beside `rules_at`.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn load(rules: &Rules, rules_at: Option<&Path>) -> Result<Self, SecretError> {
        let read = |path: &Path| {
            let path =
                rules_at.and_then(Path::parent).map_or_else(|| path.to_owned(), |place| place.join(path));
            super::read_regular(&path, super::MAX_KEPT_BYTES)
                .map_err(|source| SecretError::File { path: path.clone(), source })
                .map(|bytes| (path, bytes))
        };
        let mut secrets = Self::default();
        for (name, rule) in &rules.realm {
            check_name(name)?;
            let mut users = rule.users.clone();
            if let Some(file) = &rule.file {
                let (path, bytes) = read(file)?;
                let invalid = |said| SecretError::File {
                    path: path.clone(),
                    source: io::Error::new(io::ErrorKind::InvalidData, said),
                };
                let text = String::from_utf8(bytes).map_err(|_| invalid("it is no text in UTF-8"))?;
                for line in
                    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
                {
                    let (user, hash) =
                        line.split_once(':').ok_or_else(|| invalid("its lines are NAME:HASH"))?;
                    users.insert(user.to_owned(), hash.to_owned());
                }
            }
            if users.is_empty() {
                return Err(SecretError::NoUsers(name.clone()));
            }
            for (user, hash) in &users {
                if user.is_empty() || user.contains(':') || !password::is_hash(hash) {
                    return Err(SecretError::Hash { realm: name.clone(), user: user.clone() });
                }
            }
            let users = users.into_iter().map(|(user, hash)| (user, hash.into())).collect();
            secrets.realms.insert(name.clone(), Arc::new(Realm { name: name.clone(), users }));
        }
        for (name, rule) in &rules.key {
            check_name(name)?;
            let (path, bytes) = read(&rule.file)?;
            let key = Key::new(&bytes).ok_or(SecretError::Short(path))?;
            secrets.keys.insert(name.clone(), Arc::new(key));
        }
        Ok(secrets)
    }
}

/// What can stand in `WWW-Authenticate` as it is.
fn check_name(name: &str) -> Result<(), SecretError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.bytes().all(fits) { Ok(()) } else { Err(SecretError::Name(name.to_owned())) }
}

impl Gate {
    /// Has those pass alone who may have what rules say of a path, which begins with its slash.
    pub fn add(&mut self, rules: &Rules, secrets: &Secrets, path: &[u8]) {
        if let Some(referrers) = rules.referrers(path)
            && !self.referrers.contains(referrers)
        {
            self.referrers.push(referrers.clone());
        }
        if let Some(key) = rules.signed(path).and_then(|name| secrets.keys.get(name))
            && !self.keys.iter().any(|known| Arc::ptr_eq(known, key))
        {
            self.keys.push(Arc::clone(key));
        }
        if let Some(realm) = rules.auth(path).and_then(|name| secrets.realms.get(name))
            && !self.realms.iter().any(|known| Arc::ptr_eq(known, realm))
        {
            self.realms.push(Arc::clone(realm));
        }
    }

    /// Whether anybody may pass.
    pub fn is_open(&self) -> bool {
        self.referrers.is_empty() && self.keys.is_empty() && self.realms.is_empty()
    }

    /// Whether a URL has to be signed.
    pub fn is_signed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Adds what caches have to know of answers behind it.
    pub fn add_fields(&self, fields: &mut String) {
        if !self.referrers.is_empty() {
            fields.push_str("vary: referer\r\n");
        }
        let has_own = fields.starts_with("cache-control: ") || fields.contains("\r\ncache-control: ");
        let is_open = self.keys.is_empty() && self.realms.is_empty();
        if !has_own && !is_open {
            fields.push_str("cache-control: private\r\n");
        }
    }

    /// What becomes of a request for a path below the root at the time `now`. `passes` is whether it has what it takes in a
    /// realm.
    pub fn judge(
        &self,
        request: &Request<'_>,
        path: &[u8],
        now: SystemTime,
        mut passes: impl FnMut(&Arc<Realm>) -> bool,
    ) -> Judgement {
        let referrer = request.fields.referrer;
        if !self.referrers.iter().all(|referrers| referrers.has(referrer)) {
            return Judgement::Refused(Refusal::Referrer);
        }
        if self.is_signed() {
            let path = [b"/", path].concat();
            if !self.keys.iter().all(|key| key.is_signed(&path, request.query, now)) {
                return Judgement::Refused(Refusal::Unsigned);
            }
        }
        match self.realms.iter().find(|realm| !passes(realm)) {
            None => Judgement::Passes,
            Some(realm) => Judgement::Asks(Arc::clone(realm)),
        }
    }
}

impl Referrers {
    /// Reads them.
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

    /// Whether it says nothing.
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
}
