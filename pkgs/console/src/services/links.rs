//! A client for the part of links' API that the console uses. `/openapi.json` on its admin listener describes the whole
//! API.

use std::collections::BTreeSet;

use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use service::problem::Problem;
use url::form_urlencoded::byte_serialize;

use crate::fields::query;
use crate::upstream::{Answer, Ask, Error, Upstream};

/// A link.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Link {
    pub(crate) domain: Option<String>,
    pub(crate) code: String,
    pub(crate) short_url: String,
    pub(crate) target: String,
    pub(crate) title: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) status: String,
    pub(crate) redirect: u16,
    pub(crate) forward_query: bool,
    pub(crate) protected: bool,
    pub(crate) not_before: Option<String>,
    pub(crate) expires_at: Option<String>,
    pub(crate) max_clicks: Option<u64>,
    pub(crate) clicks: u64,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
}

/// A page of links.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Listing {
    pub(crate) links: Vec<Link>,
    pub(crate) next: Option<String>,
    /// How many links were searched, if the time limit ended the search.
    #[serde(default)]
    pub(crate) looked_at: Option<u64>,
}

/// Clicks, summed up in several ways.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stats {
    pub(crate) clicks: u64,
    pub(crate) days: Vec<TimeCount>,
    /// Only if they were requested.
    pub(crate) hours: Vec<TimeCount>,
    pub(crate) referrers: Vec<Count>,
    pub(crate) agents: Vec<Count>,
    /// Only if links knows countries.
    pub(crate) countries: Vec<Count>,
    pub(crate) older: Option<Older>,
}

impl Stats {
    /// Clicks by known bots.
    pub(crate) fn bots(&self) -> u64 {
        self.agents.iter().find(|agent| agent.name == "bot").map_or(0, |agent| agent.clicks)
    }

    /// Clicks by everybody else.
    pub(crate) fn people(&self) -> u64 {
        self.clicks.saturating_sub(self.bots())
    }

    /// All clicks on a day.
    pub(crate) fn of_day(&self, day: &str) -> u64 {
        self.days.iter().find(|one| one.name == day).map_or(0, |one| one.clicks)
    }
}

/// Clicks in a day or an hour.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TimeCount {
    pub(crate) name: String,
    pub(crate) clicks: u64,
    /// How many of them are by known bots.
    pub(crate) bots: u64,
}

impl TimeCount {
    /// Clicks by everybody else.
    pub(crate) fn people(&self) -> u64 {
        self.clicks.saturating_sub(self.bots)
    }
}

/// A line of [`Stats`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) clicks: u64,
}

/// Days for which only the sum is kept.
#[derive(Debug, Deserialize)]
pub(crate) struct Older {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) clicks: u64,
}

/// A domain for links.
#[derive(Debug, Deserialize)]
pub(crate) struct Domain {
    pub(crate) host: String,
}

#[derive(Debug, Deserialize)]
struct Domains {
    domains: Vec<Domain>,
}

/// The permissions of the key.
#[derive(Debug, Deserialize)]
struct Whoami {
    scope: String,
    /// The domains it is restricted to.
    #[serde(default)]
    domains: Option<Vec<String>>,
}

/// The outcome of an import.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Tally {
    pub(crate) created: u64,
    pub(crate) replaced: u64,
    pub(crate) skipped: u64,
    pub(crate) failed: u64,
    /// The first refused rows, and why they were refused.
    pub(crate) errors: Vec<(u64, String)>,
}

/// The outcome for one of several links.
#[derive(Debug, Deserialize)]
struct Outcome {
    /// Why it failed.
    #[serde(default)]
    problem: Option<Problem>,
}

impl Outcome {
    /// Why it failed, in words.
    fn why(self) -> Option<String> {
        let problem = self.problem?;
        // A field's error says more than the summary of the problem.
        Some(problem.errors.into_iter().next().map_or(problem.detail, |error| error.detail))
    }
}

/// The API, with the key of a user.
pub(crate) struct Links<'a> {
    pub(crate) upstream: &'a Upstream,
    pub(crate) token: &'a str,
}

impl Links<'_> {
    /// A page of the list. `fields` have the names of the API's parameters.
    pub(crate) async fn list(&self, fields: &[(&str, &str)]) -> Result<Listing, Error> {
        self.json(Ask { path: &format!("/api/v1/links?{}", query(fields)), ..self.get() }).await
    }

    /// A link, and the tag of its current state.
    pub(crate) async fn read(&self, code: &str, domain: &str) -> Result<(Link, String), Error> {
        let answer = self.upstream.ask_well(Ask { path: &one(code, "", domain, &[]), ..self.get() }).await?;
        let tag = answer.fields.get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or("*").to_owned();
        Ok((self.parsed(&answer)?, tag))
    }

    /// Creates a link. A repeated request with the same idempotency key creates no other link.
    pub(crate) async fn create(&self, link: &Map<String, Value>, key: &str) -> Result<Link, Error> {
        let fields = [("idempotency-key", key)];
        let fields = if key.is_empty() { &fields[..0] } else { &fields[..] };
        let body = ("application/json", serde_json::to_vec(link).unwrap_or_default());
        let ask = Ask { method: Method::POST, path: "/api/v1/links", fields, body: Some(body), ..self.get() };
        self.json(ask).await
    }

    /// Edits a link if `tag` is still the tag of its current state.
    pub(crate) async fn edit(
        &self,
        (code, domain): (&str, &str),
        patch: &Map<String, Value>,
        tag: &str,
    ) -> Result<Link, Error> {
        let body = ("application/merge-patch+json", serde_json::to_vec(patch).unwrap_or_default());
        let fields = [("if-match", tag)];
        let path = one(code, "", domain, &[]);
        let ask = Ask { method: Method::PATCH, path: &path, fields: &fields, body: Some(body), ..self.get() };
        self.json(ask).await
    }

    /// Deletes a link and its clicks.
    pub(crate) async fn delete(&self, code: &str, domain: &str) -> Result<(), Error> {
        let path = one(code, "", domain, &[]);
        self.upstream.ask_well(Ask { method: Method::DELETE, path: &path, ..self.get() }).await.map(drop)
    }

    /// Makes the same change to several links, given by domain and code. Returns for each the reason if it failed.
    pub(crate) async fn edit_many(
        &self,
        links: &[(&str, &str)],
        mut change: Map<String, Value>,
    ) -> Result<Vec<Option<String>>, Error> {
        let named = links.iter().map(|(domain, code)| match *domain {
            "" => json!({ "code": code }),
            domain => json!({ "domain": domain, "code": code }),
        });
        change.insert("links".to_owned(), named.collect());
        self.many("/api/v1/links/batch-edit", &Value::Object(change)).await
    }

    /// Deletes several links and their clicks, domain by domain. Returns for each the reason if it failed.
    pub(crate) async fn delete_many(&self, links: &[(&str, &str)]) -> Result<Vec<Option<String>>, Error> {
        let mut outcomes = vec![None; links.len()];
        let domains: BTreeSet<&str> = links.iter().map(|(domain, _)| *domain).collect();
        for domain in domains {
            let at = links.iter().enumerate().filter(|(_, (of, _))| *of == domain);
            let (places, codes): (Vec<usize>, Vec<&str>) =
                at.map(|(place, (_, code))| (place, *code)).unzip();
            let path = format!("/api/v1/links/batch-delete?{}", query(&[("domain", domain)]));
            for (place, why) in places.into_iter().zip(self.many(&path, &json!(codes)).await?) {
                outcomes[place] = why;
            }
        }
        Ok(outcomes)
    }

    async fn many(&self, path: &str, body: &Value) -> Result<Vec<Option<String>>, Error> {
        let body = Some(("application/json", serde_json::to_vec(body).unwrap_or_default()));
        let outcomes: Vec<Outcome> =
            self.json(Ask { method: Method::POST, path, body, ..self.get() }).await?;
        Ok(outcomes.into_iter().map(Outcome::why).collect())
    }

    /// Its short URL as a QR code.
    pub(crate) async fn qr(&self, code: &str, fields: &[(&str, &str)]) -> Result<Answer, Error> {
        self.upstream.ask_well(Ask { path: &one(code, "/qr", "", fields), ..self.get() }).await
    }

    /// Its clicks, or the clicks of all links if there is no code.
    pub(crate) async fn stats(&self, code: Option<&str>, fields: &[(&str, &str)]) -> Result<Stats, Error> {
        let path = match code {
            Some(code) => one(code, "/stats", "", fields),
            None => format!("/api/v1/stats?{}", query(fields)),
        };
        self.json(Ask { path: &path, ..self.get() }).await
    }

    /// All links, or the links of a domain, as a file in this format.
    pub(crate) async fn export(&self, format: &str, domain: &str) -> Result<Response<Incoming>, Error> {
        let fields = query(&[("format", format), ("domain", domain)]);
        self.upstream.pass_on(Ask { path: &format!("/api/v1/links/export?{fields}"), ..self.get() }).await
    }

    /// Creates a link for each row.
    pub(crate) async fn import(
        &self,
        (media_type, rows): (&'static str, Vec<u8>),
        fields: &[(&str, &str)],
    ) -> Result<Tally, Error> {
        let path = format!("/api/v1/links/import?{}", query(fields));
        let body = Some((media_type, rows));
        self.json(Ask { method: Method::POST, path: &path, body, ..self.get() }).await
    }

    /// The domains other than the default one.
    pub(crate) async fn domains(&self) -> Result<Vec<Domain>, Error> {
        let domains: Domains = self.json(Ask { path: "/api/v1/domains", ..self.get() }).await?;
        Ok(domains.domains)
    }

    /// Whether links accepts the key.
    pub(crate) async fn knows_key(&self) -> Result<bool, Error> {
        match self.upstream.ask_well(Ask { path: "/api/v1/links?limit=1", ..self.get() }).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(problem)) if problem.status == StatusCode::UNAUTHORIZED => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the key may write to all domains.
    pub(crate) async fn may_all(&self) -> Result<bool, Error> {
        let bearer: Whoami = self.json(Ask { path: "/api/v1/whoami", ..self.get() }).await?;
        Ok(bearer.scope == "write" && bearer.domains.is_none())
    }

    fn get(&self) -> Ask<'_> {
        Ask { token: Some(self.token), ..Ask::default() }
    }

    async fn json<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        self.parsed(&self.upstream.ask_well(ask).await?)
    }

    fn parsed<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::Strange { name: self.upstream.name, why: error.to_string() })
    }
}

/// The path of a link, or of something below it.
fn one(code: &str, what: &str, domain: &str, fields: &[(&str, &str)]) -> String {
    let code: String = byte_serialize(code.as_bytes()).collect();
    let all: Vec<_> = fields.iter().copied().chain([("domain", domain)]).collect();
    // The encoding writes a space as a plus sign, which a path would take literally. No code contains either.
    format!("/api/v1/links/{}{what}?{}", code.replace('+', "%20"), query(&all))
}
