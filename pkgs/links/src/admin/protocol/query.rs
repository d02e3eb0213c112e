//! Query strings.

use actix_web::HttpRequest;
use actix_web::error::QueryPayloadError;
use actix_web::web::Query;
use serde::de::DeserializeOwned;
use service::problem::Problem;
use url::form_urlencoded;

use super::failure::Failure;

/// The query string's parameters, or 400.
pub(in crate::admin) fn parse<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, Failure> {
    let text = request.query_string();
    read(text).map_err(|error| {
        let wrong = text.split('&').find(|pair| read::<T>(pair).is_err_and(|alone| alone == error));
        let detail = match wrong.and_then(|pair| pair.split('=').next()) {
            Some(name) => format!("the parameter {name}: {error}"),
            None => format!("the query string: {error}"),
        };
        Problem::bad_request(detail).into()
    })
}

/// Parses parameters. The error says why that failed.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    Query::from_query(text).map(Query::into_inner).map_err(|error| match error {
        QueryPayloadError::Deserialize(error) => error.to_string(),
        error => error.to_string(),
    })
}

/// The query string's parameters, or 400. The error for an unknown parameter lists all known ones.
pub(in crate::admin) fn parse_of<T: DeserializeOwned>(
    request: &HttpRequest,
    known: &str,
) -> Result<T, Failure> {
    let names = form_urlencoded::parse(request.query_string().as_bytes());
    match names.map(|(name, _)| name).find(|name| !is_known(name, known)) {
        Some(name) => {
            let detail = format!("there is no parameter {name:?}; there are {known}");
            Err(Problem::bad_request(detail).into())
        }
        None => parse(request),
    }
}

/// Whether a parameter is known, also by an old name.
fn is_known(name: &str, known: &str) -> bool {
    known.split(", ").any(|known| known == name) || matches!(name, "search" | "order")
}

/// 400 for a parameter out of its range.
pub(in crate::admin) fn refuse(parameter: &str, reason: &str) -> Failure {
    Problem::bad_request(format!("the parameter {parameter} {reason}")).into()
}
