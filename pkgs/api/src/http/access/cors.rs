//! Which origins may send requests (WHATWG Fetch, CORS protocol). Keys are in a field that browsers do not send by
//! themselves, so credentials are never allowed.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

/// The origins that may send requests; by default none.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    origins: Vec<HeaderValue>,
    any: bool,
}

/// The error of a text that is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected * or an origin such as https://app.example")]
pub struct InvalidOrigin;

/// How long browsers remember a preflight, in seconds; Chromium's maximum is 2 h.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const REQUEST_FIELDS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, idempotency-key, if-match, if-none-match");
const EXPOSED_FIELDS: HeaderValue = HeaderValue::from_static(
    "etag, idempotency-replayed, link, location, ratelimit, ratelimit-policy, retry-after, x-request-id",
);

/// Checks an origin for `--cors-origin`: scheme, host and port, or `*`.
///
/// # Errors
/// When it is not one.
pub fn origin(text: &str) -> Result<String, InvalidOrigin> {
    let valid = text == "*"
        || text.split_once("://").is_some_and(|(scheme, host)| {
            !scheme.is_empty()
                && !host.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_graphic())
                && !host.contains(['/', '?', '#', '@'])
        });
    if valid { Ok(text.to_ascii_lowercase()) } else { Err(InvalidOrigin) }
}

impl Cors {
    /// Allows these origins, which [`origin`] has checked.
    pub fn new(origins: &[String]) -> Self {
        let any = origins.iter().any(|origin| origin == "*");
        Self {
            origins: origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect(),
            any,
        }
    }

    /// Whether at least one origin is allowed.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.origins.is_empty()
    }

    /// Whether pages of an origin may send requests.
    pub fn allows(&self, origin: &HeaderValue) -> bool {
        self.any || self.origins.contains(origin)
    }

    /// The answer to a preflight, if the request is one.
    pub fn preflight<B: Default>(&self, method: &Method, fields: &HeaderMap) -> Option<Response<B>> {
        let asks = self.is_on()
            && method == Method::OPTIONS
            && fields.contains_key(header::ORIGIN)
            && fields.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        asks.then(|| {
            let mut response = Response::new(B::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            if self.tell(fields, response.headers_mut()) {
                let fields = response.headers_mut();
                fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
                fields.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_FIELDS);
                fields.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
            }
            response
        })
    }

    /// Adds the fields that tell a browser whether its page may see the answer.
    pub fn tell(&self, request: &HeaderMap, fields: &mut HeaderMap) -> bool {
        if !self.is_on() {
            return false;
        }
        if !self.any {
            fields.append(header::VARY, HeaderValue::from_static("origin"));
        }
        let Some(origin) = request.get(header::ORIGIN) else { return false };
        let allowed = match self.any {
            true => HeaderValue::from_static("*"),
            false if self.allows(origin) => origin.clone(),
            false => return false,
        };
        fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        fields.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_FIELDS);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(cors: &[&str], from: Option<&'static str>) -> (bool, Option<String>, Option<String>) {
        let cors = Cors::new(&cors.iter().map(|&origin| origin.to_owned()).collect::<Vec<_>>());
        let mut request = HeaderMap::new();
        if let Some(from) = from {
            request.insert(header::ORIGIN, HeaderValue::from_static(from));
        }
        let mut fields = HeaderMap::new();
        let told = cors.tell(&request, &mut fields);
        let text =
            |name| fields.get(name).and_then(|value: &HeaderValue| Some(value.to_str().ok()?.to_owned()));
        (told, text(header::ACCESS_CONTROL_ALLOW_ORIGIN), text(header::VARY))
    }

    #[test]
    fn origins_that_may_ask_are_told_so() {
        let app = "https://app.example";
        let varies = Some("origin".to_owned());
        assert_eq!(asked(&[], Some(app)), (false, None, None));
        assert_eq!(asked(&[app], Some(app)), (true, Some(app.to_owned()), varies.clone()));
        assert_eq!(asked(&[app], Some("https://evil.example")), (false, None, varies.clone()));
        assert_eq!(asked(&[app], None), (false, None, varies));
        assert_eq!(asked(&["*"], Some(app)), (true, Some("*".to_owned()), None));
    }

    #[test]
    fn only_preflights_are_answered_as_such() {
        let cors = Cors::new(&["https://app.example".to_owned()]);
        let mut fields = HeaderMap::new();
        fields.insert(header::ORIGIN, HeaderValue::from_static("https://app.example"));
        assert!(cors.preflight::<()>(&Method::OPTIONS, &fields).is_none());
        fields.insert(header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("PUT"));
        assert!(cors.preflight::<()>(&Method::GET, &fields).is_none());
        assert!(Cors::default().preflight::<()>(&Method::OPTIONS, &fields).is_none());
        let answer = cors.preflight::<()>(&Method::OPTIONS, &fields).expect("it is a preflight");
        assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_METHODS], METHODS);
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_no_path() {
        for text in ["*", "https://app.example", "http://localhost:3000"] {
            assert!(origin(text).is_ok(), "{text}");
        }
        for text in ["", "app.example", "https://", "https://a/b", "https://a b", "://x"] {
            assert_eq!(origin(text), Err(InvalidOrigin), "{text}");
        }
    }
}
