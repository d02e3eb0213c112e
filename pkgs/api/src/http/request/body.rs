//! Request bodies: media types and sizes, but not their content.

use std::time::{Duration, Instant};

use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt;
use service::problem::Problem;

use crate::http::Api;
use crate::http::failure::Failure;

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// How long a body may take before the caller's key is checked again, since it may have been revoked meanwhile.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The body of a request about one user.
pub struct One(pub Bytes);

/// The body of a request about many users.
pub struct Many(pub Bytes);

/// A merge patch.
pub struct Patch(pub Bytes);

impl One {
    /// Reads the body of a request with these fields.
    ///
    /// # Errors
    /// 415 if its media type is not JSON, 413 if it is too long, or the error that interrupted it.
    pub async fn of<B>(fields: &HeaderMap, body: B, api: &Api) -> Result<Self, Failure>
    where
        B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>>,
    {
        media_type(fields, &[JSON])?;
        let most = api.settings().limits.user_bytes;
        Ok(Self(admitted(fields, body, most, api).await?))
    }
}

impl FromRequest<Api> for One {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        Self::of(&parts.headers, body, api).await
    }
}

impl FromRequest<Api> for Many {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        media_type(&parts.headers, &[JSON])?;
        let most = api.settings().limits.batch_bytes;
        Ok(Self(admitted(&parts.headers, body, most, api).await?))
    }
}

impl FromRequest<Api> for Patch {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        // RFC 5789, section 2.2: the answer names the accepted types.
        media_type(&parts.headers, &[MERGE_PATCH, JSON]).map_err(|failure| {
            failure
                .with(header::HeaderName::from_static("accept-patch"), HeaderValue::from_static(MERGE_PATCH))
        })?;
        let most = api.settings().limits.user_bytes;
        Ok(Self(admitted(&parts.headers, body, most, api).await?))
    }
}

fn media_type(fields: &HeaderMap, accepted: &[&str]) -> Result<(), Failure> {
    if fields.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let problem = Problem::new(415, "the body must not be compressed");
        // RFC 9110, section 12.5.3.
        return Err(
            Failure::from(problem).with(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
        );
    }
    let given = fields.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(essence)) {
        return Ok(());
    }
    Err(Problem::new(415, format!("the body's media type must be {}", accepted.join(" or "))).into())
}

/// The body of a request that is still admitted once its body is there.
async fn admitted<B>(fields: &HeaderMap, body: B, most: usize, api: &Api) -> Result<Bytes, Failure>
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>>,
{
    let begun = Instant::now();
    let body = gather(body, most).await?;
    if begun.elapsed() > AT_ONCE {
        api.0.guard.still_admits(fields).await?;
    }
    Ok(body)
}

async fn gather<B>(body: B, most: usize) -> Result<Bytes, Failure>
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>>,
{
    let too_large = || Failure::from(Problem::too_large(format!("the body has more than {most} bytes")));
    let mut body = std::pin::pin!(body);
    if http_body::Body::size_hint(&body).lower() > most as u64 {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&*Into::<axum::BoxError>::into(error)))?.into_data()
        else {
            continue;
        };
        if first.len() + rest.len() + data.len() > most {
            return Err(too_large());
        }
        // Most bodies arrive in one piece, which then need not be copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Why a body ended early, according to the listener.
fn broken(error: &(dyn std::error::Error + 'static)) -> Failure {
    use listener::body::Error;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<Error>() {
            return match error {
                Error::TooLarge => Problem::too_large(error.to_string()),
                Error::Idle(_) | Error::Slow(_) => Problem::new(408, error.to_string()),
                _ => Problem::bad_request(error.to_string()),
            }
            .into();
        }
        cause = error.source();
    }
    Problem::bad_request("the body broke off").into()
}
