//! A client of the admin API.

use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use jiff::civil::Date;
use serde::Serialize;
use serde::de::DeserializeOwned;
use service::problem::Problem;
use ureq::http::{Request, Response};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, SendBody, Timeout};
use url::Url;

use super::trust;
use crate::admin::api::bulk::LOCKED;
use crate::admin::{DomainList, LinkName, Listing, Outcome, Shown};
use crate::domains::{Domain, DomainPatch, NewDomain};
use crate::front::Refusal;
use crate::link::{LinkPatch, ManyPatch, NewLink};
use crate::store::{ListQuery, Stats, Tally};
use crate::transfer::{Format, ImportOptions};

/// Timeout of connecting to a server.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a server may send nothing while it reads. It cancels a query after 5 s itself.
const SILENCE: Duration = Duration::from_secs(60);

/// How long it may send nothing, and take no more of a request's body, while it changes something. The passwords of a
/// long import take hours, and nothing is sent meanwhile.
const WORK: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest JSON answer, in bytes: a page of 1,000 links, each at its limits.
const ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// Why a request to the API failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused the request.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason, for people.
        detail: String,
    },
    /// The server is the public listener.
    #[error(
        "at {0} links are followed: --api is the address of the admin listener, 127.0.0.1:8081 unless configured"
    )]
    Public(Url),
    /// The server cannot be reached.
    #[error(
        "no server answers at {url} ({source}): is 'linerate-links serve' running, and is this its --admin address?"
    )]
    Unreachable {
        /// The server's base URL.
        url: Url,
        /// The reason.
        source: Box<ureq::Error>,
    },
    /// The server was asked to change something, and has not answered.
    #[error("{url} has not answered ({source}): it is not known whether it has done this, or still does it")]
    Unanswered {
        /// The server's base URL.
        url: Url,
        /// The reason.
        source: Box<ureq::Error>,
    },
    /// The server's identity cannot be verified.
    #[error("{url} cannot be trusted: {reason}")]
    Untrusted {
        /// The server's base URL.
        url: Url,
        /// The reason.
        reason: String,
    },
    /// There are no trusted authorities.
    #[error(transparent)]
    Trust(#[from] trust::Error),
    /// The server's answer is incomplete.
    #[error("the answer breaks off: {0}")]
    Answer(#[source] io::Error),
    /// The server's answer has an unexpected form.
    #[error("this is no answer of a linerate-links API: {0}")]
    Strange(#[source] Box<ureq::Error>),
}

impl Error {
    /// Whether other input could have avoided the error.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Refused { status: 400 | 404 | 422, .. }
                | Self::Public(_)
                | Self::Untrusted { .. }
                | Self::Trust(_)
        )
    }
}

/// The options of an export.
pub struct Export<'e> {
    /// The format.
    pub format: Format,
    /// Whether to include password hashes.
    pub hashes: bool,
    /// Only the links of this domain; all if absent.
    pub domain: Option<&'e str>,
}

/// A client of one server. It keeps its connection.
pub struct Client {
    base: Url,
    authorization: String,
    agent: Agent,
    /// [`SILENCE`], except in tests.
    silence: Duration,
    /// [`WORK`], except in tests.
    work: Duration,
}

/// The error for a URL that cannot be an API's.
#[derive(Debug, thiserror::Error)]
#[error("an http or https URL without query is needed")]
pub(super) struct InvalidBase;

/// Parses an API's base URL.
pub(super) fn base(text: &str) -> Result<Url, InvalidBase> {
    let mut url = Url::parse(text).map_err(|_| InvalidBase)?;
    match url.scheme() {
        "http" | "https" if url.has_host() && url.query().is_none() && url.fragment().is_none() => {
            // The API's description names its base URL with this path.
            let path = url.path().trim_end_matches('/');
            let path = path.strip_suffix("/api/v1").unwrap_or(path).to_owned();
            url.set_path(&path);
            Ok(url)
        }
        _ => Err(InvalidBase),
    }
}

impl Client {
    /// Makes a client, which connects with its first request. With TLS, `authorities` is a file of trusted certificate
    /// authorities that replaces the system's.
    ///
    /// # Errors
    /// When the URL uses TLS, and there are no trusted authorities.
    pub fn new(base: Url, token: &str, authorities: Option<&Path>) -> Result<Self, Error> {
        let tls = if base.scheme() == "https" { trust::config(authorities)? } else { TlsConfig::default() };
        // A proxy for the web must not see an admin token.
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .user_agent(concat!("linerate-links/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let authorization = format!("Bearer {token}");
        Ok(Self { base, authorization, agent, silence: SILENCE, work: WORK })
    }

    /// `POST /links`.
    pub fn create(&self, link: &NewLink) -> Result<Shown, Error> {
        self.json("POST", self.url(&["links"]), Some(link))
    }

    /// `GET /links/{code}`.
    pub fn get(&self, domain: Option<&str>, code: &str) -> Result<Shown, Error> {
        self.json("GET", self.url_at(&["links", code], domain), NOTHING)
    }

    /// `GET /links`.
    pub fn list(&self, domain: Option<&str>, query: &ListQuery) -> Result<Listing, Error> {
        let mut url = self.url_at(&["links"], domain);
        {
            let mut pairs = url.query_pairs_mut();
            for (name, value) in [("q", &query.search), ("tag", &query.tag), ("cursor", &query.cursor)] {
                if let Some(value) = value {
                    pairs.append_pair(name, value);
                }
            }
            if let Some(status) = query.status {
                pairs.append_pair("status", &word(&status));
            }
            let sign = if query.descending { "-" } else { "" };
            pairs.append_pair("sort", &format!("{sign}{}", word(&query.sort)));
            pairs.append_pair("limit", &query.limit.to_string());
        }
        self.json("GET", url, NOTHING)
    }

    /// `PATCH /links/{code}`.
    pub fn edit(&self, domain: Option<&str>, code: &str, patch: &LinkPatch) -> Result<Shown, Error> {
        self.json("PATCH", self.url_at(&["links", code], domain), Some(patch))
    }

    /// `POST /links/batch-edit`. Returns a result per link.
    pub fn edit_many(
        &self,
        domain: Option<&str>,
        codes: &[String],
        patch: &ManyPatch,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        /// The body of the request.
        #[derive(Serialize)]
        struct Sent<'a> {
            links: Vec<LinkName>,
            #[serde(flatten)]
            patch: &'a ManyPatch,
        }
        let name = |code: &String| LinkName { domain: domain.map(str::to_owned), code: code.clone() };
        let sent = Sent { links: codes.iter().map(name).collect(), patch };
        let outcomes: Vec<Outcome> = self.json("POST", self.url(&["links", "batch-edit"]), Some(&sent))?;
        let refused =
            |problem: Problem| Err(Error::Refused { status: problem.status, detail: in_words(&problem) });
        Ok(outcomes.into_iter().map(|outcome| outcome.problem.map_or(Ok(()), refused)).collect())
    }

    /// `DELETE /links/{code}`.
    pub fn delete(&self, domain: Option<&str>, code: &str) -> Result<(), Error> {
        let request = self.request("DELETE", &self.url_at(&["links", code], domain));
        self.send(request, SendBody::none()).map(drop)
    }

    /// `POST /links/import`, with a streamed body.
    pub fn import(&self, format: Format, input: &mut dyn Read, how: &ImportOptions) -> Result<Tally, Error> {
        let mut url = self.url_at(&["links", "import"], how.domain.as_deref());
        url.query_pairs_mut()
            .append_pair("format", &word(&format))
            .append_pair("on_conflict", &word(&how.on_conflict));
        let request = self.request("POST", &url).header("Content-Type", format.media_type());
        parsed(self.send(request, SendBody::from_reader(input))?)
    }

    /// `GET /links/export`, as a stream, with the number of links that it disables because their passwords are left
    /// out.
    pub fn export(&self, what: &Export<'_>) -> Result<(impl Read, u64), Error> {
        let mut url = self.url_at(&["links", "export"], what.domain);
        url.query_pairs_mut()
            .append_pair("format", &word(&what.format))
            .append_pair("hashes", if what.hashes { "true" } else { "false" });
        let request = self.request("GET", &url);
        let response = self.send(request, SendBody::none())?;
        let locked = response.headers().get(LOCKED).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok((response.into_body().into_reader(), locked.unwrap_or(0)))
    }

    /// `GET /links/{code}/stats` or `GET /stats`.
    pub fn stats(
        &self,
        domain: Option<&str>,
        code: Option<&str>,
        days: RangeInclusive<Date>,
        hours: bool,
    ) -> Result<Stats, Error> {
        let mut url = match code {
            Some(code) => self.url_at(&["links", code, "stats"], domain),
            None => self.url_at(&["stats"], domain),
        };
        url.query_pairs_mut()
            .append_pair("from", &days.start().to_string())
            .append_pair("to", &days.end().to_string());
        if hours {
            // An older server does not know this parameter, so it is sent only if needed.
            url.query_pairs_mut().append_pair("hours", "true");
        }
        self.json("GET", url, NOTHING)
    }

    /// `POST /domains`.
    pub fn create_domain(&self, new: &NewDomain) -> Result<Domain, Error> {
        self.json("POST", self.url(&["domains"]), Some(new))
    }

    /// `GET /domains`.
    pub fn domains(&self) -> Result<DomainList, Error> {
        self.json("GET", self.url(&["domains"]), NOTHING)
    }

    /// `PATCH /domains/{host}`.
    pub fn edit_domain(&self, host: &str, patch: &DomainPatch) -> Result<Domain, Error> {
        self.json("PATCH", self.url(&["domains", host]), Some(patch))
    }

    /// `DELETE /domains/{host}`.
    pub fn delete_domain(&self, host: &str, force: bool) -> Result<(), Error> {
        let mut url = self.url(&["domains", host]);
        if force {
            url.query_pairs_mut().append_pair("force", "true");
        }
        self.send(self.request("DELETE", &url), SendBody::none()).map(drop)
    }

    /// Adds the domain as a parameter, if there is one.
    fn url_at(&self, path: &[&str], domain: Option<&str>) -> Url {
        let mut url = self.url(path);
        if let Some(domain) = domain {
            url.query_pairs_mut().append_pair("domain", domain);
        }
        url
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Fails only for URLs without a host.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        url
    }

    fn request(&self, method: &str, url: &Url) -> http::request::Builder {
        Request::builder().method(method).uri(url.as_str()).header("Authorization", &self.authorization)
    }

    fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let mut request = self.request(method, &url);
        let body = match body {
            Some(value) => {
                request = request.header("Content-Type", "application/json");
                SendBody::from_json(value).map_err(|source| self.unreachable(source))?
            }
            None => SendBody::none(),
        };
        parsed(self.send(request, body)?)
    }

    fn send(&self, request: http::request::Builder, body: SendBody<'_>) -> Result<Response<Body>, Error> {
        let request = request.body(body).map_err(|error| self.unreachable(error.into()))?;
        let changes = !request.method().is_safe();
        let patience = Some(if changes { self.work } else { self.silence });
        let request = self.agent.configure_request(request);
        let request = request.timeout_per_read(patience).timeout_per_write(patience).build();
        let mut response =
            self.agent.run(request).map_err(|source| match changes && may_be_sent(&source) {
                true => Error::Unanswered { url: self.base.clone(), source: Box::new(source) },
                false => self.unreachable(source),
            })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let problem = response.body_mut().read_json::<Problem>();
        if problem.as_ref().is_ok_and(is_public) {
            return Err(Error::Public(self.base.clone()));
        }
        let detail = problem.map_or_else(|_| status.to_string(), |problem| in_words(&problem));
        Err(Error::Refused { status: status.as_u16(), detail })
    }

    fn unreachable(&self, source: ureq::Error) -> Error {
        let url = self.base.clone();
        match trust::refusal(&source) {
            Some(reason) => Error::Untrusted { url, reason },
            None => Error::Unreachable { url, source: Box::new(source) },
        }
    }
}

/// Whether a request may have reached the server before this error.
fn may_be_sent(error: &ureq::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    match error {
        ureq::Error::Timeout(Timeout::PerRead | Timeout::PerWrite) => true,
        ureq::Error::Io(error) => {
            matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof
            )
        }
        _ => false,
    }
}

/// Whether this is an answer that only the public listener gives.
fn is_public(problem: &Problem) -> bool {
    let said = [Refusal::Missing, Refusal::Method].map(|refusal| refusal.text().2);
    said.contains(&problem.detail.as_str())
}

/// The body of a request without one.
const NOTHING: Option<&()> = None;

fn parsed<T: DeserializeOwned>(mut response: Response<Body>) -> Result<T, Error> {
    response
        .body_mut()
        .with_config()
        .limit(ANSWER_BYTES)
        .read_json()
        .map_err(|error| Error::Strange(Box::new(error)))
}

/// The parts of a problem that a person can act on: which fields are wrong and why, if the problem says so.
fn in_words(problem: &Problem) -> String {
    if problem.status != 422 || problem.errors.is_empty() {
        return problem.detail.clone();
    }
    let faults = problem.errors.iter();
    let faults = faults.map(|fault| format!("{}: {}", fault.pointer.trim_start_matches('/'), fault.detail));
    faults.collect::<Vec<_>>().join("; ")
}

/// The JSON text of an enum's value.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// Answers the deletion of `late`, after a while, and nothing else.
    fn serve(stream: &TcpStream) {
        let mut is_late = false;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if is_late && line.is_empty() {
                thread::sleep(Duration::from_millis(500));
                let mut stream = stream;
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the client waits");
            }
            is_late |= line.contains("/links/late");
        }
    }

    #[test]
    fn a_change_has_its_time_and_nobody_knows_of_one_without_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || serve(&stream));
            }
        });
        let short = Duration::from_millis(50);
        let client = |silence, work| {
            let client = Client::new(base(&url).expect("a URL"), "lr_token", None).expect("a client");
            Client { silence, work, ..client }
        };
        client(short, WORK).delete(None, "late").expect("it is waited for");
        let read = client(short, WORK).domains().expect_err("there is no answer");
        assert!(matches!(read, Error::Unreachable { .. }), "{read}");
        let changed = client(SILENCE, short).delete(None, "never").expect_err("there is no answer");
        assert!(matches!(changed, Error::Unanswered { .. }), "{changed}");
    }
}
