//! Answers: JSON, and errors. The same in all stages.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, StringRejection};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use service::problem;

/// JSON that is already serialised.
pub fn json(text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Why there is no answer: the status says everything (RFC 9457).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem(StatusCode);

impl Problem {
    /// The body or the id can't be parsed.
    pub const BAD_REQUEST: Self = Self(StatusCode::BAD_REQUEST);
    /// No such user.
    pub const NOT_FOUND: Self = Self(StatusCode::NOT_FOUND);
    /// The database doesn't answer.
    pub const UNAVAILABLE: Self = Self(StatusCode::SERVICE_UNAVAILABLE);

    /// Axum distinguishes bad JSON (400) from JSON that isn't a user (422), which not every parser does.
    fn rejected(status: StatusCode) -> Self {
        if status == StatusCode::UNPROCESSABLE_ENTITY { Self::BAD_REQUEST } else { Self(status) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.0;
        let problem = problem::Problem::new(status.as_u16(), "see the stages' documentation");
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        (status, [(CONTENT_TYPE, problem::CONTENT_TYPE)], body).into_response()
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::rejected(rejection.status())
    }
}

impl From<StringRejection> for Problem {
    fn from(rejection: StringRejection) -> Self {
        Self::rejected(rejection.status())
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        Self::rejected(rejection.status())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::rejected(rejection.status())
    }
}

impl From<serde_json::Error> for Problem {
    /// The stored document isn't valid.
    fn from(_: serde_json::Error) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<sonic_rs::Error> for Problem {
    /// The stored document isn't valid.
    fn from(_: sonic_rs::Error) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<sqlx::Error> for Problem {
    fn from(_: sqlx::Error) -> Self {
        Self::UNAVAILABLE
    }
}

/// Requires that the body's media type is JSON, as axum's `Json` does. For the stages that don't use `Json`.
#[derive(Clone, Copy, Debug)]
pub struct IsJson;

impl<S: Sync> FromRequestParts<S> for IsJson {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let media_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = media_type.and_then(|value| value.split(';').next()).map_or("", str::trim);
        let is_json = essence.eq_ignore_ascii_case("application/json");
        is_json.then_some(Self).ok_or(Problem(StatusCode::UNSUPPORTED_MEDIA_TYPE))
    }
}
