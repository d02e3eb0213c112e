//! Errors of requests, in the form of RFC 9457.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use service::problem::{self, Problem};

use crate::store::{Error, Tally};

/// After how many seconds to retry if the store was busy. The longest batch is done by then.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error answer: a problem and its headers.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Failure(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    problem: Problem,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Failure {
    pub(in crate::admin) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// Adds how far an import has come.
    pub(in crate::admin) fn with_tally(mut self, tally: &Tally) -> Self {
        self.0.problem = self.0.problem.with_extension("tally", tally);
        self
    }

    /// The store accepts no more at the moment.
    pub(in crate::admin) fn busy(detail: &str) -> Self {
        Self::from(Problem::unavailable(detail)).with_header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// Whether the client may not do this, and not that something is wrong here.
    pub(in crate::admin) fn is_refusal(&self) -> bool {
        matches!(self.0.problem.status, 401 | 403)
    }

    /// The problem alone, for one of many results.
    pub(in crate::admin) fn into_problem(self) -> Problem {
        self.0.problem
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(Inner { problem, header: None }))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        let at = |pointer: &str| Problem::unprocessable("a field is wrong").with_error(pointer, &detail);
        Self::from(match &error {
            Error::NotFound(_) | Error::NoToken(_) | Error::NoDomain(_) => Problem::not_found(detail),
            Error::OtherDomain(_) => Problem::forbidden(detail),
            Error::Taken(_) => Problem::conflict(&detail).with_error("/code", "taken"),
            Error::DomainTaken(_) => Problem::conflict(&detail).with_error("/host", "taken"),
            Error::DomainInUse(_) => Problem::conflict(&detail),
            Error::Host(_) => at("/host"),
            Error::Code(_) => at("/code"),
            Error::Target(_) => at("/target"),
            Error::Field { field, reason } => {
                Problem::unprocessable("a field is wrong").with_error(format!("/{field}"), reason)
            }
            Error::Changed => Problem::new(412, detail),
            Error::KeyReused => Problem::unprocessable(detail),
            Error::Busy | Error::TooSlow => return Self::busy(&detail),
            Error::Unreachable(_) => {
                tracing::warn!(%error, "a request of the API finds no database");
                return Self::busy("the database cannot be reached");
            }
            Error::OnlyFiles => Problem::new(501, detail),
            Error::ReadOnly | Error::Closed => Problem::unavailable(detail),
            Error::Full => Problem::insufficient_storage(detail),
            Error::Panicked => Problem::internal(detail),
            Error::CannotOpen
            | Error::Directory
            | Error::NotADatabase
            | Error::Foreign
            | Error::TooNew { .. }
            | Error::NotCommitted(_)
            | Error::NotEmpty(_)
            | Error::Differs(_)
            | Error::Postgres(_)
            | Error::Remote
            | Error::Sqlite(_) => {
                tracing::error!(%error, "the database failed");
                Problem::internal("the database failed; the log says how")
            }
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.problem.fmt(f)
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let Inner { problem, header } = &*self.0;
        let mut response = HttpResponse::build(self.status_code());
        response.insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(pair) = header {
            response.insert_header(pair.clone());
        }
        // The header comes first, since the builder keeps an existing content type.
        response.insert_header((header::CONTENT_TYPE, problem::CONTENT_TYPE));
        let mut response = response.json(problem);
        // The listener adds the request's id to it.
        response.extensions_mut().insert(problem.clone());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains::InvalidHost;

    #[test]
    fn each_refusal_of_the_store_has_its_status() {
        for (error, status, retry) in [
            (Error::NotFound("a".to_owned()), 404, false),
            (Error::Taken("a".to_owned()), 409, false),
            (Error::NoDomain("a".to_owned()), 404, false),
            (Error::OtherDomain("a".to_owned()), 403, false),
            (Error::DomainTaken("a".to_owned()), 409, false),
            (Error::DomainInUse("a".to_owned()), 409, false),
            (Error::Host(InvalidHost::Address), 422, false),
            (Error::Changed, 412, false),
            (Error::KeyReused, 422, false),
            (Error::field("title", "too long"), 422, false),
            (Error::Busy, 503, true),
            (Error::TooSlow, 503, true),
            (Error::Unreachable("x".to_owned()), 503, true),
            (Error::OnlyFiles, 501, false),
            (Error::ReadOnly, 503, false),
            (Error::Closed, 503, false),
            (Error::Full, 507, false),
            (Error::NotCommitted("x".to_owned()), 500, false),
        ] {
            let text = error.to_string();
            let response = Failure::from(error).error_response();
            assert_eq!(response.status(), status, "{text}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), retry, "{text}");
            let media_type = response.headers().get(header::CONTENT_TYPE);
            assert_eq!(media_type.unwrap(), problem::CONTENT_TYPE, "{text}");
        }
    }
}
