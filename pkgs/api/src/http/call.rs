//! What the front has found out about a request, for axum's extractors.

use axum::extract::FromRequestParts;
use http::request::Parts;
use service::problem::Problem;

use super::Api;
use super::access::guard::Caller;
use super::audit::Audit;
use super::failure::Failure;
use crate::user::UserId;

/// What the front knows of a request; it puts this into the request's extensions.
#[derive(Clone)]
pub struct Call {
    /// Who asks. The front has checked that the scope suffices for the route.
    pub caller: Caller,
    /// The id in the path, where there is one.
    pub id: Option<UserId>,
    /// Where writes are logged.
    pub audit: Audit,
}

impl Call {
    /// Takes it from a request's extensions.
    ///
    /// # Errors
    /// 500 where the front has put nothing there.
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
