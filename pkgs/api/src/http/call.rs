//! What the front found out about a request, for axum's extractors.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use service::problem::Problem;

use super::Api;
use super::access::guard::Caller;
use super::audit::Audit;
use super::failure::Failure;
use super::response::budget::{Reservation, ResponseBudget};
use crate::user::UserId;

/// What the front knows about a request, in the request's extensions.
#[derive(Clone)]
pub struct Call {
    /// The client. The front has checked that its scope suffices for the route.
    pub caller: Caller,
    /// The id in the path, if there is one.
    pub id: Option<UserId>,
    /// The audit log.
    pub audit: Audit,
    /// The memory of large answers.
    pub answers: Arc<ResponseBudget>,
}

impl Call {
    /// Reads it from a request's extensions.
    ///
    /// # Errors
    /// 500 if the front has not put it there.
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

impl FromRequestParts<Api> for Reservation {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Failure> {
        Ok(Call::of(parts)?.answers.reservation())
    }
}
