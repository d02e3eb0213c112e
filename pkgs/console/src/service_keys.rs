//! The keys of linerate-links and linerate-api, for users whose own key may write everything there.

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::keys::KeyOf;
use crate::upstream::{Ask, Error, Upstream};

/// A key, without its secret.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Key {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) scope: String,
    /// The domains it is restricted to, for links.
    pub(crate) domains: Option<Vec<String>>,
    /// Requests per second, for linerate-api.
    pub(crate) rate: Option<u32>,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
    /// Accurate to one minute.
    pub(crate) last_used_at: Option<String>,
}

/// A new key with its secret. It has no `Debug`, so that it can't be logged.
#[derive(Deserialize)]
pub(crate) struct Made {
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) info: Key,
}

#[derive(Deserialize)]
struct Listing {
    keys: Vec<Key>,
}

/// A service's keys, for the user with this key.
pub(crate) struct Keys<'a> {
    pub(crate) of: KeyOf,
    pub(crate) upstream: &'a Upstream,
    pub(crate) token: &'a str,
}

impl Keys<'_> {
    /// Lists the keys.
    pub(crate) async fn list(&self) -> Result<Vec<Key>, Error> {
        let listing: Listing = self.json(Ask { path: self.path(), ..self.get() }).await?;
        Ok(listing.keys)
    }

    /// Reads a key.
    pub(crate) async fn read(&self, id: i64) -> Result<Key, Error> {
        self.json(Ask { path: &format!("{}/{id}", self.path()), ..self.get() }).await
    }

    /// Creates a key. Only this response contains its secret.
    pub(crate) async fn create(&self, key: &Map<String, Value>) -> Result<Made, Error> {
        let body = Some(("application/json", serde_json::to_vec(key).unwrap_or_default()));
        self.json(Ask { method: Method::POST, path: self.path(), body, ..self.get() }).await
    }

    /// Revokes a key.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Error> {
        let path = format!("{}/{id}", self.path());
        self.upstream.ask_well(Ask { method: Method::DELETE, path: &path, ..self.get() }).await.map(drop)
    }

    fn path(&self) -> &'static str {
        match self.of {
            KeyOf::Links => "/api/v1/keys",
            KeyOf::Api => "/v1/keys",
        }
    }

    fn get(&self) -> Ask<'_> {
        Ask { token: Some(self.token), ..Ask::default() }
    }

    async fn json<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        let answer = self.upstream.ask_well(ask).await?;
        // The body contains the secret, so errors don't quote it.
        serde_json::from_slice(&answer.body).map_err(|error| Error::Strange {
            name: self.upstream.name,
            why: format!("line {}, column {}", error.line(), error.column()),
        })
    }
}
