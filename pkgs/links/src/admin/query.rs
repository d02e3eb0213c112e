//! What stands after `?`.

use actix_web::HttpRequest;
use actix_web::web::Query;
use serde::de::DeserializeOwned;
use service::problem::Problem;

use super::failure::Failure;

/// The query string's parameters, or 400.
pub(super) fn parse<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, Failure> {
    let parsed = Query::<T>::from_query(request.query_string());
    Ok(parsed.map_err(|error| Problem::bad_request(format!("the query string: {error}")))?.into_inner())
}

/// 400 for a parameter that is out of its range.
pub(super) fn refuse(parameter: &str, reason: &str) -> Failure {
    Problem::bad_request(format!("the parameter {parameter} {reason}")).into()
}
