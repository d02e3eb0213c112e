//! What the answers of the API have in common.

use actix_web::HttpResponseBuilder;
use actix_web::http::header;

/// Answers are for who asks with a token, and of the moment.
pub(in crate::admin) fn uncached(mut response: HttpResponseBuilder) -> HttpResponseBuilder {
    response.insert_header((header::CACHE_CONTROL, "no-store"));
    response
}
