//! The hosts for which requests are accepted if no key is required, against DNS rebinding.

use http::Request;
use http::header::{self, HeaderValue};
use listener::Peer;
use service::allowed_hosts::{AllowedHosts, Refused, SocketFamily};

/// Checks that a request is for one of these hosts, and that a page of one of them sent it. `origin` is the request's
/// `Origin`. It is none if CORS allows that origin, whatever its host.
///
/// # Errors
/// When one of the two is not allowed; the error says which.
pub(in crate::http) fn check<B>(
    hosts: &AllowedHosts,
    request: &Request<B>,
    origin: Option<&HeaderValue>,
) -> Result<(), Refused> {
    // Only an empty host is treated differently on a Unix socket.
    let unnamed = request.headers().get(header::HOST).is_none_or(HeaderValue::is_empty);
    let unix = || request.extensions().get::<Peer>().is_some_and(|peer| peer.local.is_none());
    let family = if unnamed && unix() { SocketFamily::Unix } else { SocketFamily::Network };
    hosts.check_request(family, request, origin)
}
