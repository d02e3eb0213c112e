//! Renders answers as responses for the `listener` crate, which are prepared at the start as far as possible.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use listener::Body;
use service::problem::Problem;

use super::page::{self, HTML, PAGE_FIELDS, PROBLEM, Refusal};
use super::templates::cache_control;
use super::{Page, Redirect, Render, Reuse};
use crate::front::Settings;

/// Prepared responses.
pub struct Responses {
    /// By [`Reuse`].
    cache_control: [HeaderValue; Reuse::ALL.len()],
    redirect_body: bool,
    /// Each refusal, first for programs, then for people.
    refusals: [[Prepared; 2]; Refusal::ALL.len()],
}

/// A response that only has to be copied.
struct Prepared {
    status: StatusCode,
    fields: HeaderMap,
    body: bytes::Bytes,
    /// A problem for programs, to which the listener adds the request's id.
    problem: Option<Problem>,
}

impl Responses {
    /// The responses for these settings.
    pub fn new(settings: &Settings) -> Self {
        let refusals = Refusal::ALL.map(|refusal| {
            let (status, ..) = refusal.text();
            [(PROBLEM, refusal.problem().json()), (HTML, refusal.html())].map(|(kind, body)| Prepared {
                status: code(status),
                fields: fields(&[PAGE_FIELDS, refusal.fields()], kind, body.len()),
                body: body.into(),
                problem: (kind == PROBLEM).then(|| refusal.problem()),
            })
        });
        Self {
            cache_control: Reuse::ALL.map(|reuse| text(&cache_control(settings, reuse))),
            redirect_body: settings.redirect_body,
            refusals,
        }
    }
}

impl Render for &Responses {
    type Answer = Response<Body>;

    fn redirect(self, redirect: Redirect, reuse: Reuse, location: &[u8], head: bool) -> Response<Body> {
        let body = if self.redirect_body { page::moved(location) } else { String::new() };
        // This leaves room for fields that are added later: date, alt-svc and strict-transport-security.
        let mut fields = HeaderMap::with_capacity(6);
        fields.insert(header::CACHE_CONTROL, self.cache_control[reuse as usize].clone());
        let length = if body.is_empty() { HeaderValue::from_static("0") } else { body.len().into() };
        fields.insert(header::CONTENT_LENGTH, length);
        fields.insert(header::LOCATION, value(location));
        if self.redirect_body {
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML));
        }
        response(code(redirect.code()), fields, body.into(), head)
    }

    fn page(self, page: &Page<'_>, head: bool) -> Response<Body> {
        let fields = fields(&[page.fields], page.kind, page.body.len());
        response(code(page.status.0), fields, page.body.to_owned().into(), head)
    }

    fn refuse(self, refusal: Refusal, html: bool, head: bool) -> Response<Body> {
        let Prepared { status, fields, body, problem } = &self.refusals[refusal as usize][usize::from(html)];
        let mut response = response(*status, fields.clone(), body.clone(), head);
        if let Some(problem) = problem {
            response.extensions_mut().insert(problem.clone());
        }
        response
    }
}

fn response(status: StatusCode, fields: HeaderMap, body: bytes::Bytes, head: bool) -> Response<Body> {
    // The fields describe the body even if it is left out for a HEAD.
    let mut response = Response::new(if head { Body::empty() } else { Body::whole(body) });
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

/// The fields of a page: `lines`, each with its line end, and those about its body.
fn fields(lines: &[&str], kind: &str, length: usize) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(8);
    let lines = lines.iter().flat_map(|lines| lines.split_terminator("\r\n"));
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("the constants are fields");
        fields.insert(name, text(value));
    }
    fields.insert(header::CONTENT_TYPE, text(kind));
    fields.insert(header::CONTENT_LENGTH, length.into());
    fields
}

/// The status code of one of our own statuses.
fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("a status has three digits")
}

/// A field value from one of our own texts, or from a target, which has only characters of URLs.
pub fn text(text: &str) -> HeaderValue {
    value(text.as_bytes())
}

fn value(value: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(value).unwrap_or_else(|_| {
        debug_assert!(false, "no value: {value:?}");
        HeaderValue::from_static("")
    })
}
