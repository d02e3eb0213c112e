//! Common parts of the API's answers.

use actix_web::HttpResponseBuilder;
use actix_web::http::header;

/// Forbids caching: answers depend on the token and the time.
pub(in crate::admin) fn uncached(mut response: HttpResponseBuilder) -> HttpResponseBuilder {
    response.insert_header((header::CACHE_CONTROL, "no-store"));
    response
}
