//! A client for the part of linerate-api's users that the console uses. That service's `/openapi.json` describes the
//! whole API.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::fields::query;
use crate::upstream::{Answer, Ask, Error, Upstream};

/// What the list shows about a user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) email: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) tags: Vec<String>,
    pub(crate) created_at: String,
}

/// The members of [`User`], as a parameter of the API.
const LISTED: &str = "id,email,name,status,tags,created_at";

/// A page of users.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Listing {
    pub(crate) users: Vec<User>,
    pub(crate) next: Option<String>,
}

/// A user as the API returns it, including members that the console doesn't know.
pub(crate) type Document = Map<String, Value>;

/// The API, with the key of a user; without a key if it requires none.
pub(crate) struct Users<'a> {
    pub(crate) upstream: &'a Upstream,
    pub(crate) token: Option<&'a str>,
}

impl Users<'_> {
    /// A page of the list. `fields` have the names of the API's parameters.
    pub(crate) async fn list(&self, fields: &[(&str, &str)]) -> Result<Listing, Error> {
        let fields: Vec<_> = fields.iter().copied().chain([("fields", LISTED)]).collect();
        let path = format!("/v1/users?{}", query(&fields));
        self.parsed(&self.upstream.ask_well(Ask { path: &path, ..self.get() }).await?)
    }

    /// A user, and the tag of its version.
    pub(crate) async fn read(&self, id: &Id) -> Result<(Document, String), Error> {
        let answer = self.upstream.ask_well(Ask { path: &id.path(), ..self.get() }).await?;
        let tag = answer.fields.get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or("*").to_owned();
        Ok((self.parsed(&answer)?, tag))
    }

    /// Creates a user. A repeated request with the same idempotency key creates no other user.
    pub(crate) async fn create(&self, user: &Document, once: &str) -> Result<Document, Error> {
        let fields = [("idempotency-key", once)];
        let fields = if once.is_empty() { &fields[..0] } else { &fields[..] };
        self.send(Method::POST, "/v1/users", fields, user).await
    }

    /// Replaces a user if `tag` is still the tag of its version.
    pub(crate) async fn replace(&self, id: &Id, user: &Document, tag: &str) -> Result<Document, Error> {
        self.send(Method::PUT, &id.path(), &[("if-match", tag)], user).await
    }

    /// Deletes a user if `tag` is still the tag of its version.
    pub(crate) async fn delete(&self, id: &Id, tag: &str) -> Result<(), Error> {
        let fields = [("if-match", tag)];
        let ask = Ask { method: Method::DELETE, path: &id.path(), fields: &fields, ..self.get() };
        self.upstream.ask_well(ask).await.map(drop)
    }

    /// Whether the API accepts the client's key.
    pub(crate) async fn admitted(&self) -> Result<bool, Error> {
        let ask = Ask { path: "/v1/users?limit=1&fields=id", ..self.get() };
        match self.upstream.ask_well(ask).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(problem)) if problem.status == StatusCode::UNAUTHORIZED => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        fields: &[(&'static str, &str)],
        user: &Document,
    ) -> Result<Document, Error> {
        let body = ("application/json", serde_json::to_vec(user).unwrap_or_default());
        let ask = Ask { method, path, fields, body: Some(body), ..self.get() };
        self.parsed(&self.upstream.ask_well(ask).await?)
    }

    fn get(&self) -> Ask<'_> {
        Ask { token: self.token, ..Ask::default() }
    }

    fn parsed<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::Strange { name: self.upstream.name, why: error.to_string() })
    }
}

/// A user's ID. It is a UUID, so it can't change the path that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id(String);

impl Id {
    /// Parses a text that may be an ID.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let plausible = text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        plausible.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn path(&self) -> String {
        format!("/v1/users/{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_nowhere_else() {
        for (text, taken) in [
            ("019aa0e2-7c5e-7d2a-9d3e-0123456789ab", true),
            ("019aa0e2-7c5e-7d2a-9d3e-0123456789a", false),
            ("../../../../../../../../../../../../", false),
            ("019aa0e2-7c5e-7d2a-9d3e-0123456789a?", false),
            ("", false),
        ] {
            assert_eq!(Id::parse(text).is_some(), taken, "{text}");
        }
    }
}
