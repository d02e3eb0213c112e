//! The keys of links and the API, for whoever has one that may write everything there.

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
    /// Where it is for some domains of links.
    pub(crate) domains: Option<Vec<String>>,
    /// Requests a second, of the API.
    pub(crate) rate: Option<u32>,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
    /// To a minute.
    pub(crate) last_used_at: Option<String>,
}

/// A new key, with its secret: not to be logged, so it has no `Debug`.
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

/// The keys of a service, for whoever has this one.
pub(crate) struct Keys<'a> {
    pub(crate) of: KeyOf,
    pub(crate) upstream: &'a Upstream,
    pub(crate) token: &'a str,
}

impl Keys<'_> {
    /// Those that there are.
    pub(crate) async fn list(&self) -> Result<Vec<Key>, Error> {
        let listing: Listing = self.json(Ask { path: self.path(), ..self.get() }).await?;
        Ok(listing.keys)
    }

    /// One of them.
    pub(crate) async fn read(&self, id: i64) -> Result<Key, Error> {
        self.json(Ask { path: &format!("{}/{id}", self.path()), ..self.get() }).await
    }

    /// Makes one; its secret is in the answer alone.
    pub(crate) async fn create(&self, key: &Map<String, Value>) -> Result<Made, Error> {
        let body = Some(("application/json", serde_json::to_vec(key).unwrap_or_default()));
        self.json(Ask { method: Method::POST, path: self.path(), body, ..self.get() }).await
    }

    /// Revokes one.
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
        // Where it is what has a secret, what is wrong with it is not told.
        serde_json::from_slice(&answer.body).map_err(|error| Error::Strange {
            name: self.upstream.name,
            why: format!("line {}, column {}", error.line(), error.column()),
        })
    }
}
