//! What the front has found out about a request, for axum's extractors.

use axum::extract::FromRequestParts;
use http::request::Parts;
use service::problem::Problem;

use super::Api;
use super::access::guard::Caller;
use super::audit::Audit;
use super::failure::Failure;
use crate::user::UserId;

/// That, in the extensions of a request.
#[derive(Clone)]
pub struct Call {
    /// Who asks, and has the scope that the route takes.
    pub caller: Caller,
    /// The id in the path, where there is one.
    pub id: Option<UserId>,
    /// Where writes are logged.
    pub audit: Audit,
}

impl Call {
    /// That of a request.
    ///
    /// # Errors
    /// 500 where nobody put one in.
    pub fn of(parts: &Parts) -> Result<&Self, Failure> {
        parts.extensions.get().ok_or_else(|| Problem::internal("nobody asked who asks").into())
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        Ok(Call::of(parts)?.caller.clone())
    }
}

impl FromRequestParts<Api> for Audit {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        Ok(Call::of(parts)?.audit.clone())
    }
}
