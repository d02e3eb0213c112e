//! Passwords and keys that rules name, which are read at the start and at SIGHUP.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use service::password;

use super::signature::{Key, MIN_KEY_BYTES};

/// A group of users with passwords.
#[derive(Debug)]
pub struct Realm {
    /// The name that browsers show.
    pub name: String,
    /// The users' hashes by name.
    pub users: BTreeMap<String, Arc<str>>,
}

/// Realms and keys, by name.
#[derive(Debug, Default)]
pub struct Secrets {
    realms: BTreeMap<String, Arc<Realm>>,
    keys: BTreeMap<String, Arc<Key>>,
}

/// A realm in rules.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RealmRule {
    /// The users' argon2 hashes by name, as `linerate-files password` makes them.
    #[serde(default)]
    pub users: BTreeMap<String, String>,
    /// A file with more users, one NAME:HASH per line; `#` begins a comment.
    pub file: Option<PathBuf>,
}

/// A key in rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KeyRule {
    /// The file with its bytes.
    pub file: PathBuf,
}

/// Why the secrets can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A file can't be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A name with invalid characters.
    #[error("{0:?} is no name: those have letters, digits, -, _ and .")]
    Name(String),
    /// A user's hash is invalid.
    #[error("realm {realm}: {user:?} has no argon2 hash of bounded cost; linerate-files password makes one")]
    Hash {
        /// The realm.
        realm: String,
        /// The user.
        user: String,
    },
    /// A realm without users.
    #[error("realm {0}: there are no users")]
    NoUsers(String),
    /// A key that is short enough to guess.
    #[error("{}: a key has at least {MIN_KEY_BYTES} bytes", .0.display())]
    Short(PathBuf),
}

impl Secrets {
    /// Reads everything that rules name; paths are relative to `rules_at`.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn load(
        realms: &BTreeMap<String, RealmRule>,
        keys: &BTreeMap<String, KeyRule>,
        rules_at: Option<&Path>,
    ) -> Result<Self, SecretError> {
        let read = |path: &Path| {
            let path =
                rules_at.and_then(Path::parent).map_or_else(|| path.to_owned(), |place| place.join(path));
            super::read_regular(&path, super::MAX_KEPT_BYTES)
                .map_err(|source| SecretError::File { path: path.clone(), source })
                .map(|bytes| (path, bytes))
        };
        let mut secrets = Self::default();
        for (name, rule) in realms {
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
        for (name, rule) in keys {
            check_name(name)?;
            let (path, bytes) = read(&rule.file)?;
            let key = Key::new(&bytes).ok_or(SecretError::Short(path))?;
            secrets.keys.insert(name.clone(), Arc::new(key));
        }
        Ok(secrets)
    }

    /// The realm of this name.
    pub fn realm(&self, name: &str) -> Option<&Arc<Realm>> {
        self.realms.get(name)
    }

    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&Arc<Key>> {
        self.keys.get(name)
    }
}

/// Checks that a name can be in `WWW-Authenticate` unescaped.
fn check_name(name: &str) -> Result<(), SecretError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.bytes().all(fits) { Ok(()) } else { Err(SecretError::Name(name.to_owned())) }
}
