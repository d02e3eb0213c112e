//! Signing in and out.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::response::Response;
use http::header;
use http::{HeaderMap, StatusCode};
use maud::html;
use oidc::sign_in;
use service::logs::LogLimit;

use super::unread::Reader;
use super::{again, csrf, document, onwards, refused, see_other};
use crate::app::App;
use crate::fields::Fields;
use crate::keys::{self, KEY_BYTES, KeyOf};
use crate::session::Grant;
use crate::single_sign_on::{self, BEGIN, SingleSignOn};
use crate::upstream;
use crate::visitor::{self, Visitor};

/// The answer if no issuer is configured.
const NO_ISSUER: &str = "this console was started without --oidc-issuer";

/// The longest path of a page that a user wanted, in bytes.
const PLACE_BYTES: usize = 1024;

/// Anybody can cause these failures, as often as they like.
static LEAVES_FAILED: LogLimit = LogLimit::new();
static DEPARTURES_FAILED: LogLimit = LogLimit::new();
static ARRIVALS_FAILED: LogLimit = LogLimit::new();

/// The parameter for users who signed in at the issuer and have now signed out of the console.
const LEFT: &str = "left";

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if visitor.grant.is_some() {
        return see_other(back(&fields));
    }
    if let Some(at) = app.single_sign_on.as_ref().filter(|_| fields.has(LEFT)) {
        return left(at).await;
    }
    show(StatusCode::OK, &app, &visitor, &fields, None)
}

/// Tells a user who has signed out of the console that they are still signed in at the issuer. It links to the issuer's
/// sign-out, where the issuer asks for a confirmation.
async fn left(at: &SingleSignOn) -> Response {
    let place = at.sign_in.leave().await.unwrap_or_else(|error| {
        if let Some(times) = LEAVES_FAILED.due() {
            tracing::warn!(%error, times, "nobody can sign out at the issuer");
        }
        None
    });
    let content = html! {
        div.sign-in {
            h1 { "Signed out" }
            p { "You are signed out of this console, and not at " (at.place) ": whoever sits here next may be let in without being asked." }
            p.buttons {
                @if let Some(place) = place { a.button.primary href=(place) { "Sign out at " (at.place) " too" } }
                a.button href="/sign-in" { "Sign in again" }
            }
        }
    };
    document(StatusCode::OK, "Signed out", html! {}, content, Reader::Stranger)
}

/// Begins a session for a user with a links key.
pub(crate) async fn sign_in(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let key = fields.get("key").trim();
    if let Err((status, why)) = keys::check(&app, &visitor, KeyOf::Links, key).await {
        return show(status, &app, &visitor, &fields, Some(&why));
    }
    // A new cookie, so that nobody can have set it beforehand (session fixation).
    let grant = Grant { links: Some(key.to_owned()), ..Grant::default() };
    let begun = app.sessions.begin(grant, visitor.address, Instant::now());
    let Ok(cookie) = begun else {
        let why = "the system has no randomness for a session";
        return show(StatusCode::INTERNAL_SERVER_ERROR, &app, &visitor, &fields, Some(why));
    };
    tracing::info!(client = ?visitor.address, "somebody signed in");
    let mut response = see_other(back(&fields));
    let cookie = visitor::set_cookie(&cookie, visitor.secure, app.session_seconds);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

/// Sends a user to the issuer. This is a page and not a redirect: the content security policy allows forms only to the
/// console, also after redirects.
pub(crate) async fn depart(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    fields: Fields,
    head: HeaderMap,
) -> Response {
    let Some(at) = &app.single_sign_on else { return refused(StatusCode::NOT_FOUND, NO_ISSUER) };
    let Some(redirect) = at.redirect(&head) else {
        let why =
            "an issuer sends nobody back in the clear: open this console by https://, or on this machine";
        return show(StatusCode::UNPROCESSABLE_ENTITY, &app, &visitor, &fields, Some(why));
    };
    match at.sign_in.depart(&redirect, back(&fields)).await {
        Ok(departure) => {
            let mut response = onwards(&departure.location, &format!("On to {}", at.place));
            let cookie = single_sign_on::set_cookie(&departure.cookie, visitor.secure);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(error) => {
            if let Some(times) = DEPARTURES_FAILED.due() {
                tracing::warn!(%error, times, "nobody can sign in at the issuer");
            }
            show(StatusCode::SERVICE_UNAVAILABLE, &app, &visitor, &fields, Some(&error.to_string()))
        }
    }
}

/// Begins a session for a user who comes back from the issuer, if links accepts their token.
pub(crate) async fn arrive(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    fields: Fields,
    head: HeaderMap,
) -> Response {
    let Some(at) = &app.single_sign_on else { return refused(StatusCode::NOT_FOUND, NO_ISSUER) };
    let mut response = match arrived((&app, at), &visitor, &fields, &head).await {
        Ok((cookie, next)) => {
            let mut response = again(&next);
            let cookie = visitor::set_cookie(&cookie, visitor.secure, app.session_seconds);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(Refusal { status, why, is_common }) => {
            if is_common {
                tracing::debug!(client = ?visitor.address, why, "nobody is signed in by the issuer");
            } else if let Some(times) = ARRIVALS_FAILED.due() {
                tracing::warn!(client = ?visitor.address, why, times, "nobody is signed in by the issuer");
            }
            refused(status, &why)
        }
    };
    response.headers_mut().append(header::SET_COOKIE, single_sign_on::set_cookie("", visitor.secure));
    response
}

/// Why nobody is signed in by the issuer.
struct Refusal {
    status: StatusCode,
    why: String,
    /// Whether it says nothing of the issuer or links: any page can make a browser cause it.
    is_common: bool,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), is_common: false }
    }
}

/// The cookie of a new session, and the page that the user wanted.
async fn arrived(
    (app, at): (&App, &SingleSignOn),
    visitor: &Visitor,
    fields: &Fields,
    head: &HeaderMap,
) -> Result<(String, String), Refusal> {
    app.sign_in_limits.take(visitor.address, Instant::now()).map_err(|exceeded| {
        let why = format!("too many tries; try again in {} s", exceeded.retry_seconds().max(1));
        Refusal { is_common: true, ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, why) }
    })?;
    let arrival = at.sign_in.arrive(sign_in::Return {
        cookie: single_sign_on::cookie(head, visitor.secure),
        state: fields.get("state"),
        code: fields.get("code"),
        iss: fields.some("iss"),
        error: fields.some("error"),
    });
    let arrival = arrival.await.map_err(|error| {
        // This guesses nothing, and any page can make a browser ask for it.
        let is_common = matches!(error, sign_in::Error::Unknown);
        if is_common {
            app.sign_in_limits.give_back(visitor.address);
        }
        let status = match error {
            sign_in::Error::Busy | sign_in::Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            sign_in::Error::Randomness => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::FORBIDDEN,
        };
        Refusal { is_common, ..Refusal::new(status, error.to_string()) }
    })?;
    app.sign_in_limits.give_back(visitor.address);
    let user = at.user(&arrival);
    let token = arrival.token;
    match keys::ask(app, KeyOf::Links, &token).await {
        Ok(true) => {}
        Ok(false) => {
            let why = "linerate-links does not take tokens of this issuer: it needs --jwt-issuer and --jwt-audience";
            return Err(Refusal::new(StatusCode::FORBIDDEN, why));
        }
        Err(upstream::Error::Refused(problem)) if problem.status == StatusCode::FORBIDDEN => {
            let why = format!("{} may do nothing here: none of their groups is for anything", user.name);
            return Err(Refusal::new(StatusCode::FORBIDDEN, why));
        }
        Err(error) => {
            let why = format!("nobody can sign in now: {error}");
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
    }
    // A user without access to linerate-api's users can sign in too, and add a key for that later.
    let api = keys::ask(app, KeyOf::Api, &token).await.unwrap_or(false).then(|| token.clone());
    tracing::info!(client = ?visitor.address, user = user.name, "somebody signed in by the issuer");
    let grant = Grant { links: Some(token), api, user: Some(user) };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(arrival.claims.exp).saturating_sub(since);
    let begun = app.sessions.begin_until(grant, visitor.address, Instant::now(), left);
    let why = "the system has no randomness for a session";
    let cookie = begun.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why))?;
    Ok((cookie, arrival.next))
}

/// Ends the session, or all sessions with the same key or person.
pub(crate) async fn sign_out(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let by_issuer = visitor.grant.as_ref().is_some_and(|grant| grant.user.is_some());
    if let Some(grant) = visitor.grant.filter(|_| fields.has("everywhere")) {
        app.sessions.end_all(&grant);
    }
    app.sessions.end(&visitor.cookie);
    let place = if by_issuer { format!("/sign-in?{LEFT}=yes") } else { "/sign-in".to_owned() };
    let mut response = see_other(&place);
    response.headers_mut().insert(header::SET_COOKIE, visitor::set_cookie("", visitor.secure, 0));
    response
}

/// The page that a user wanted. It must be a path on the console: browsers treat `//host` and `/\host` as another site.
pub(super) fn back(fields: &Fields) -> &str {
    Some(fields.get("next")).filter(|next| is_ours(next)).unwrap_or("/")
}

/// Whether a text is the path of one of the console's pages, and not longer than theirs are.
pub(super) fn is_ours(place: &str) -> bool {
    place.len() <= PLACE_BYTES
        && place.starts_with('/')
        && !place.starts_with("//")
        && place.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

fn show(status: StatusCode, app: &App, visitor: &Visitor, fields: &Fields, why: Option<&str>) -> Response {
    let content = html! {
        div.sign-in {
            h1 { "Sign in" }
            @if let Some(at) = &app.single_sign_on {
                form method="post" action=(BEGIN) {
                    (csrf(visitor))
                    input type="hidden" name="next" value=(back(fields));
                    button.primary { "Sign in at " (at.place) }
                }
                h2 { "By a key" }
            }
            @if app.links.is_some() {
                form method="post" action="/sign-in" {
                    (csrf(visitor))
                    input type="hidden" name="next" value=(back(fields));
                    label for="key" { "Key" }
                    input #key name="key" type="password" autocomplete="current-password" required autofocus
                        maxlength=(KEY_BYTES) spellcheck="false" aria-invalid=[why.map(|_| "true")]
                        aria-describedby={ "key-hint" @if why.is_some() { " key-error" } };
                    @if let Some(why) = why { p.error #key-error role="alert" { (why) } }
                    p.hint #key-hint {
                        "The token that linerate-links prints, or a key: "
                        code { "linerate-links key add NAME --scope write" }
                    }
                    button.primary { "Sign in" }
                }
            } @else {
                p role="alert" { "Keys of linerate-links let people in, and it does not run here." }
            }
        }
    };
    document(status, "Sign in", html! {}, content, Reader::Stranger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        let long = format!("/{}", "a".repeat(PLACE_BYTES));
        for (next, expected) in [
            ("/links?q=a", "/links?q=a"),
            ("", "/"),
            ("links", "/"),
            ("//evil.example/", "/"),
            ("/\\evil.example/", "/"),
            ("https://evil.example/", "/"),
            ("/a\nb", "/"),
            (long.as_str(), "/"),
        ] {
            let query = crate::fields::query(&[("next", next)]);
            assert_eq!(back(&Fields::parse(query.as_bytes())), expected, "{next:?}");
        }
    }
}
