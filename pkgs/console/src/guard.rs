//! Checks every request before a page handles it: the host name, the session, and the form's origin. Also sets the
//! security headers of the response.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use listener::Peer;
use service::access_log::RequestContext;
use service::allowed_hosts::SocketFamily;
use service::request_id::RequestId;
use tokio::time::timeout;

use crate::app::App;
use crate::csrf::{self, FIELD};
use crate::fields::{Fields, query};
use crate::sent_file::{self, SentFile};
use crate::single_sign_on::{BACK, BEGIN};
use crate::visitor::{Visitor, cookie, set_cookie};
use crate::{assets, pages};

/// The longest form, in bytes. A link that uses all its limits takes a tenth of it.
const FORM_BYTES: usize = 256 * 1024;

/// The longest form of somebody who isn't signed in, in bytes: a key, and the page that they wanted.
const SIGN_IN_BYTES: usize = 4 * 1024;

/// How long a form may take.
const FORM_TIME: Duration = Duration::from_secs(30);

/// The longest form with rows to import, in bytes. All rows are held in memory.
const IMPORT_BYTES: usize = 8 << 20;

/// The most fields in a form with a file.
const MOST_FIELDS: usize = 16;

/// Uploads in pieces. Their token is in a header, since their bodies are bytes of files.
const UPLOADS: &str = "/files/uploads";
const TOKEN: &str = "x-csrf";

/// The answer to a form with a wrong token.
const OLD: &str =
    "this form is older than the session, or of none: go back, load the page again, and send it once more";

/// Browsers may load only what the console itself serves. Inline scripts and styles never run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The fields of the submitted form, or else of the query.
impl<S: Sync> FromRequestParts<S> for Fields {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let sent = parts.extensions.get().cloned();
        Ok(sent.unwrap_or_else(|| Self::parse(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

/// Lets permitted requests through, and adds the security headers.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let mut response = if let Some(hosts) = &app.hosts
        && let Err(refused) =
            hosts.check_request(socket_family(&request), &request, request.headers().get(header::ORIGIN))
    {
        pages::refused(StatusCode::FORBIDDEN, &refused.to_string())
    } else if path.starts_with("/assets/") && matches!(*request.method(), Method::GET | Method::HEAD) {
        assets::answer(path, request.headers())
    } else {
        let mut visitor = visitor(&app, &request);
        if let Ok((visitor, _)) = &mut visitor
            && pages::operation::is_over(&app, visitor).await
        {
            (visitor.grant, visitor.session) = (None, false);
        }
        admit(&app, visitor, request, next).await
    };
    harden(response.headers_mut());
    response
}

/// How a request arrived. Over a Unix socket, the host name may be empty, which can't come from a web page.
fn socket_family(request: &Request) -> SocketFamily {
    let unnamed = request.headers().get(header::HOST).is_none_or(HeaderValue::is_empty);
    let unix = request.extensions().get::<Peer>().is_some_and(|peer| peer.local.is_none());
    if unnamed && unix { SocketFamily::Unix } else { SocketFamily::Network }
}

/// Lets a visitor in, and reads any form that they send.
async fn admit(
    app: &App,
    visitor: Result<(Visitor, Option<HeaderValue>), getrandom::Error>,
    request: Request,
    next: Next,
) -> Response {
    let (visitor, set_cookie) = match visitor {
        Ok(visitor) => visitor,
        Err(error) => return pages::refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let returns = request.uri().path() == BACK;
    let signing_in = returns || ["/sign-in", BEGIN].contains(&request.uri().path());
    // The visitor followed a link from another site, so the browser didn't send the session's cookie. A new cookie
    // would replace that one. The console therefore answers with a page that requests the same page again, now with the
    // cookie. This can only show a page, since forms need more than a cookie.
    if set_cookie.is_some()
        && !returns
        && *request.method() == Method::GET
        && of_another_site(request.headers())
    {
        return pages::again(request.uri().path_and_query().map_or("/", |path| path.as_str()));
    }
    let mut response = if visitor.grant.is_none() && !signing_in {
        to_sign_in(&request)
    } else if matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut request = request;
        request.extensions_mut().insert(visitor);
        next.run(request).await
    } else {
        match form(&visitor, request).await {
            Ok(mut request) => {
                let may_write = visitor.grant.is_some();
                request.extensions_mut().insert(visitor);
                if may_write { write(app, request, next).await } else { next.run(request).await }
            }
            Err((status, why)) => pages::refused(status, why),
        }
    };
    // A session that has just begun sets its own cookie. A visitor who returns from the issuer may have one that wasn't
    // sent.
    if let Some(cookie) = set_cookie.filter(|_| !returns)
        && !response.headers().contains_key(header::SET_COOKIE)
    {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Answers a form in a task of its own. The listener drops the request's future when the client leaves, but a service
/// goes on with what it was asked to write, so the task takes that to its line in the audit log.
async fn write(app: &App, request: Request, next: Next) -> Response {
    let running = app.writes.subscribe();
    let task = tokio::spawn(async move {
        let _running = running;
        next.run(request).await
    });
    task.await.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => pages::refused(StatusCode::SERVICE_UNAVAILABLE, "the console ends: try again in a moment"),
    })
}

/// Whether the visitor follows a link on another site's page. The repeated request doesn't count as one.
fn of_another_site(fields: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| fields.get(name).is_some_and(|given| given == value);
    says("sec-fetch-site", "cross-site") && says("sec-fetch-mode", "navigate")
}

/// The visitor, and the new cookie if they have none.
fn visitor(app: &App, request: &Request) -> Result<(Visitor, Option<HeaderValue>), getrandom::Error> {
    let peer = request.extensions().get::<Peer>();
    let secure = peer.is_some_and(|peer| peer.tls.is_some());
    let address = peer.and_then(|peer| peer.client(request.headers()));
    let sent = cookie(request.headers(), secure);
    // Requests for live updates don't extend a session.
    let used = !request.uri().path().starts_with("/live/");
    let (grant, session) = match &app.open {
        Some(grant) => (Some(grant.clone()), false),
        None => {
            let grant = sent.as_ref().and_then(|id| app.sessions.grant(id, used, Instant::now()));
            let session = grant.is_some();
            (grant, session)
        }
    };
    let (cookie, set) = match sent {
        Some(cookie) => (cookie, None),
        None => {
            let cookie = csrf::random()?;
            let set = set_cookie(&cookie, secure, app.session_seconds);
            (cookie, Some(set))
        }
    };
    let form = app.secret.token(&cookie);
    let request = request_id(peer, request);
    Ok((Visitor { grant, cookie, form, session, secure, address, request }, set))
}

/// The request's ID: the one in the access log, else the one from a trusted proxy, else a new one.
fn request_id(peer: Option<&Peer>, request: &Request) -> RequestId {
    if let Some(logged) = request.extensions().get::<RequestContext>() {
        return logged.id().clone();
    }
    let trusted = peer.is_some_and(|peer| peer.proxies.is_some());
    let given = if trusted { RequestId::of_fields(request.headers()) } else { None };
    given.unwrap_or_else(RequestId::generate)
}

/// Reads a form that was sent from one of the console's pages.
async fn form(visitor: &Visitor, request: Request) -> Result<Request, (StatusCode, &'static str)> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !csrf::same_origin(request.headers(), host.or(authority)) {
        return Err((StatusCode::FORBIDDEN, "this form was sent by a page of another site"));
    }
    if request.uri().path().starts_with(UPLOADS) {
        let token = request.headers().get(TOKEN).and_then(|token| token.to_str().ok());
        return match csrf::matches(token.unwrap_or_default(), &visitor.form) {
            true => Ok(request),
            false => Err((StatusCode::FORBIDDEN, OLD)),
        };
    }
    let has_file = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|media_type| media_type.as_bytes().starts_with(b"multipart/form-data"));
    match request.uri().path() {
        "/files/upload" => return form_with_file(visitor, request, sent_file::MOST_BYTES).await,
        "/links/import" if has_file => return form_with_file(visitor, request, IMPORT_BYTES).await,
        _ => {}
    }
    let is_form = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|media_type| media_type.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if !is_form {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "forms are application/x-www-form-urlencoded"));
    }
    let (mut parts, body) = request.into_parts();
    let too_long = (StatusCode::PAYLOAD_TOO_LARGE, "this form is too long, or broke off");
    let most = if visitor.grant.is_some() { FORM_BYTES } else { SIGN_IN_BYTES };
    // What is announced, or else the most that may come, is reserved meanwhile, and others have no room.
    if body.size_hint().lower() > most as u64 {
        return Err(too_long);
    }
    let has_length = parts.headers.contains_key(header::CONTENT_LENGTH) || body.size_hint().exact().is_some();
    if visitor.grant.is_none() && !has_length {
        return Err((StatusCode::LENGTH_REQUIRED, "this form has to say how long it is"));
    }
    let body = timeout(FORM_TIME, Limited::new(body, most).collect()).await;
    let body =
        body.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "this form took too long"))?.map_err(|_| too_long)?;
    let fields = Fields::parse(&body.to_bytes());
    if !csrf::matches(fields.get(FIELD), &visitor.form) {
        return Err((StatusCode::FORBIDDEN, OLD));
    }
    parts.extensions.insert(fields);
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Reads a form that contains a file (RFC 7578) and was sent from one of the console's pages.
async fn form_with_file(
    visitor: &Visitor,
    request: Request,
    most_bytes: usize,
) -> Result<Request, (StatusCode, &'static str)> {
    let media_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let Ok(boundary) = multer::parse_boundary(media_type.unwrap_or_default()) else {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "forms with files are multipart/form-data"));
    };
    let (mut parts, body) = request.into_parts();
    let most = most_bytes + FORM_BYTES;
    let body = Limited::new(body, most).collect().await;
    let body = body.map_err(|_| {
        (StatusCode::PAYLOAD_TOO_LARGE, "this file is too long for a plain form, or broke off")
    })?;
    let whole = futures_util::stream::iter([Ok::<_, std::io::Error>(body.to_bytes())]);
    let mut form = multer::Multipart::new(whole, boundary);
    let malformed = |_| (StatusCode::BAD_REQUEST, "this form is malformed");
    let (mut fields, mut file) = (Vec::new(), None);
    while let Some(field) = form.next_field().await.map_err(malformed)? {
        if fields.len() == MOST_FIELDS {
            return Err((StatusCode::BAD_REQUEST, "this form has too many fields"));
        }
        let name = field.name().unwrap_or_default().to_owned();
        match field.file_name().map(str::to_owned) {
            Some(called) => {
                file = Some(SentFile { name: called, bytes: field.bytes().await.map_err(malformed)? })
            }
            None => fields.push((name, field.text().await.map_err(malformed)?)),
        }
    }
    let fields = Fields::from(fields);
    if !csrf::matches(fields.get(FIELD), &visitor.form) {
        return Err((StatusCode::FORBIDDEN, OLD));
    }
    parts.extensions.insert(fields);
    if let Some(file) = file {
        parts.extensions.insert(file);
    }
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Redirects a visitor without a session to the sign-in page, and back afterwards. A part of a page can't be
/// redirected, so htmx is told to reload the whole page.
fn to_sign_in(request: &Request) -> Response {
    // The script would follow a redirect, and take the page there for an answer.
    if request.uri().path().starts_with(UPLOADS) {
        return pages::upload::signed_out();
    }
    // With an error status, a live page would keep its last figures, and ask again without end.
    if let Some(response) = pages::live::signed_out(request.uri().path()) {
        return response;
    }
    let back = match *request.method() {
        Method::GET => request.uri().path_and_query().map_or("/", |path| path.as_str()),
        _ => "/",
    };
    let place = format!("/sign-in?{}", query(&[("next", if back == "/" { "" } else { back })]));
    let place = HeaderValue::from_str(place.trim_end_matches('?'));
    let place = place.unwrap_or(HeaderValue::from_static("/sign-in"));
    if request.headers().contains_key("hx-request") || request.uri().path().starts_with("/live/") {
        return (StatusCode::UNAUTHORIZED, [(HeaderName::from_static("hx-redirect"), place)]).into_response();
    }
    (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response()
}

fn harden(fields: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, browsers would send forms without a useful Origin.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    // Pages show the current state, and only to signed-in users, so nobody may cache them.
    fields.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
