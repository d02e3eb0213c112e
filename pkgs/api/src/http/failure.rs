//! Errors of requests, in the form of RFC 9457.

use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use service::problem::{self, Problem};

use crate::store;
use crate::user::parse::Refused;

/// After how many seconds to retry if the database was busy or away; by then connections are free or made again.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error answer: a problem and its header fields.
#[derive(Debug)]
pub struct Failure(Box<(Problem, HeaderMap)>);

impl Failure {
    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.1.insert(name, value);
        self
    }

    /// 404 for a user.
    pub fn no_user() -> Self {
        Problem::not_found("there is no such user").into()
    }

    /// 412: a condition of the request does not hold.
    pub fn precondition() -> Self {
        Problem::new(412, "the user is at another version").into()
    }

    /// 409 with a pointer to the email.
    pub fn email_taken(pointer: String) -> Self {
        Problem::conflict("another user has the email").with_error(pointer, "is taken").into()
    }

    /// 503: there is no room for the answer.
    pub fn no_room() -> Self {
        let detail = "too many large answers are under way; ask for fewer users, or later";
        Self::from(Problem::unavailable(detail)).with(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.0.0
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new((problem, HeaderMap::new())))
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        match &error {
            store::Error::Busy | store::Error::Unreachable(_) => {
                tracing::debug!(error = service::exit::chain(&error), "the database did not answer");
                Self::from(Problem::unavailable(error.to_string())).with(header::RETRY_AFTER, RETRY_AFTER)
            }
            store::Error::Full => Problem::insufficient_storage(error.to_string()).into(),
            store::Error::ReadOnly => Problem::unavailable(error.to_string()).into(),
            store::Error::Unusable(_) | store::Error::Failed(_) => {
                tracing::error!(error = service::exit::chain(&error), "the database failed");
                Problem::internal("the database failed; the log says how").into()
            }
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Syntax(_) => Problem::bad_request(refused.to_string()).into(),
            Refused::Faults(errors) => {
                let detail = match errors.len() {
                    1 => "1 part of the body is wrong".to_owned(),
                    count => format!("{count} parts of the body are wrong"),
                };
                Problem { errors, ..Problem::unprocessable(detail) }.into()
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (problem, mut fields) = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let mut response = (status, fields, sonic_rs::to_vec(&problem).unwrap_or_default()).into_response();
        // The listener adds the request's id to it.
        response.extensions_mut().insert(problem);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_database_does_not_answer_is_to_be_tried_again_and_a_failure_is_not() {
        for (error, status, retry) in [
            (store::Error::Busy, 503, true),
            (store::Error::Unreachable("away".into()), 503, true),
            (store::Error::Full, 507, false),
            (store::Error::ReadOnly, 503, false),
            (store::Error::Failed("broken".into()), 500, false),
        ] {
            let response = Failure::from(error).into_response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), retry);
            assert_eq!(response.headers()[header::CONTENT_TYPE], problem::CONTENT_TYPE);
        }
    }
}
