//! What handlers may return.

use std::borrow::Cow;
use std::convert::Infallible;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

/// What becomes a response with a body of type `R`.
///
/// Texts become `text/plain; charset=utf-8`. Whoever must not pay for a header gives a [`Response`], which
/// goes out as it is.
pub trait IntoResponse<R> {
    /// The response.
    fn into_response(self) -> Response<R>;
}

impl<R> IntoResponse<R> for Response<R> {
    #[inline]
    fn into_response(self) -> Response<R> {
        self
    }
}

impl<R: Default> IntoResponse<R> for () {
    fn into_response(self) -> Response<R> {
        Response::new(R::default())
    }
}

impl<R: Default> IntoResponse<R> for StatusCode {
    #[inline]
    fn into_response(self) -> Response<R> {
        let mut response = Response::new(R::default());
        *response.status_mut() = self;
        response
    }
}

impl<R> IntoResponse<R> for Infallible {
    fn into_response(self) -> Response<R> {
        match self {}
    }
}

/// The same with this status.
impl<R, T: IntoResponse<R>> IntoResponse<R> for (StatusCode, T) {
    fn into_response(self) -> Response<R> {
        let (status, rest) = self;
        let mut response = rest.into_response();
        *response.status_mut() = status;
        response
    }
}

impl<R, T: IntoResponse<R>, E: IntoResponse<R>> IntoResponse<R> for Result<T, E> {
    fn into_response(self) -> Response<R> {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

fn text<R>(body: R) -> Response<R> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl<R: From<&'static str>> IntoResponse<R> for &'static str {
    fn into_response(self) -> Response<R> {
        text(self.into())
    }
}

impl<R: From<String>> IntoResponse<R> for String {
    fn into_response(self) -> Response<R> {
        text(self.into())
    }
}

impl<R: From<&'static str> + From<String>> IntoResponse<R> for Cow<'static, str> {
    fn into_response(self) -> Response<R> {
        match self {
            Cow::Borrowed(body) => body.into_response(),
            Cow::Owned(body) => body.into_response(),
        }
    }
}

/// A refusal with a body of RFC 9457.
pub(crate) fn problem<R: From<String>>(status: StatusCode, detail: &'static str) -> Response<R> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{},"detail":"{detail}"}}"#,
        status.as_u16()
    );
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
