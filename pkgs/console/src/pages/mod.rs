//! The pages, one file per page.
// More than a dozen files: one for each page, and what several pages share.

pub(crate) mod access;
mod clicks;
pub(crate) mod doctor;
pub(crate) mod files;
mod form;
mod history;
pub(crate) mod link;
pub(crate) mod link_form;
pub(crate) mod links;
mod list;
pub(crate) mod live;
pub(crate) mod operation;
pub(crate) mod overview;
pub(crate) mod profile;
pub(crate) mod queues;
pub(crate) mod service_keys;
pub(crate) mod sessions;
pub(crate) mod sign_in;
mod text;
pub(crate) mod transfer;
mod unread;
pub(crate) mod upload;
pub(crate) mod user;
pub(crate) mod user_form;
pub(crate) mod users;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use maud::{DOCTYPE, Markup, html};
use service::problem::Problem;

use self::unread::Reader;
use crate::app::App;
use crate::assets;
use crate::csrf::FIELD;
use crate::links::Links;
use crate::upstream;
use crate::users::Users;
use crate::visitor::Visitor;

/// htmx's settings: they disable everything that the content security policy forbids, and the browser's storage.
const HTMX: &str = r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,"historyCacheSize":0,"refreshOnHistoryMiss":true}"#;

/// When a search form fetches its list anew (htmx's `hx-trigger`). Not when a field of text changes, which it does once
/// the mouse is pressed elsewhere: the list would be replaced under the pointer, and the click be lost. A form that lacks
/// one of these fields hears nothing of it.
const SEARCH_TRIGGER: &str = "submit, change from:#status, change from:#sort, change from:#domain, \
    input changed delay:300ms from:#q, input changed delay:300ms from:#tag";

/// The pages in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Overview,
    Links,
    Users,
    Files,
    Queues,
    Profile,
    Doctor,
    Access,
    None,
}

const SCREENS: [(Screen, &str, &str); 8] = [
    (Screen::Overview, "Overview", "/"),
    (Screen::Links, "Links", "/links"),
    (Screen::Users, "Users", "/users"),
    (Screen::Files, "Files", "/files"),
    (Screen::Queues, "Queues", "/queues"),
    (Screen::Profile, "Profile", "/profile"),
    (Screen::Doctor, "Doctor", "/doctor"),
    (Screen::Access, "Access", "/access"),
];

/// Whether a page has anything to show.
fn has(app: &App, screen: Screen) -> bool {
    match screen {
        Screen::Links => app.links.is_some(),
        Screen::Users => app.users.is_some(),
        Screen::Files => app.files.is_some(),
        _ => true,
    }
}

/// A page for somebody who is signed in.
pub(crate) fn page(
    status: StatusCode,
    whose: (&App, &Visitor),
    named: (Screen, &str),
    content: Markup,
) -> Response {
    page_for(Reader::Known, status, whose, named, content)
}

/// A page with what was done and is shown this once. It does not fail for want of room.
fn page_once(whose: (&App, &Visitor), named: (Screen, &str), content: Markup) -> Response {
    page_for(Reader::Once, StatusCode::OK, whose, named, content)
}

fn page_for(
    reader: Reader,
    status: StatusCode,
    (app, visitor): (&App, &Visitor),
    (screen, title): (Screen, &str),
    content: Markup,
) -> Response {
    let bar = html! {
        nav aria-label="Screens" {
            @for (one, name, place) in SCREENS {
                @if has(app, one) {
                    a href=(place) aria-current=[(one == screen).then_some("page")] { (name) }
                }
            }
        }
        div.who {
            @if app.open.is_some() {
                span.note { "No sign-in: only this machine can open this console" }
            } @else {
                form.inline method="post" action="/sign-out" {
                    (csrf(visitor))
                    button.quiet { "Sign out" }
                    button.quiet name="everywhere" value="yes" title="Ends every session of yours" { "… everywhere" }
                }
            }
        }
    };
    document(status, title, bar, content, reader)
}

/// A whole document.
fn document(status: StatusCode, title: &str, bar: Markup, content: Markup, reader: Reader) -> Response {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · linerate" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX);
                link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::path("console.css"));
                script src=(assets::path("htmx.js")) defer {}
                script src=(assets::path("sse.js")) defer {}
                script src=(assets::path("console.js")) defer {}
            }
            body {
                a.skip href="#content" { "Skip to content" }
                header.bar {
                    a.brand href="/" { img src=(assets::path("icon.svg")) alt="" width="20" height="20"; "linerate" }
                    (bar)
                }
                main #content tabindex="-1" { (content) }
            }
        }
    };
    markup_response(status, markup, reader)
}

/// A response with HTML; 503 while too many clients read theirs too slowly.
fn markup_response(status: StatusCode, markup: Markup, reader: Reader) -> Response {
    let Some(body) = unread::body(markup.into_string(), reader) else {
        let why = "Too many pages are on their way: try again in a moment.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// Redirects the browser after a form was submitted.
fn see_other(place: &str) -> Response {
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, place);
    response
}

/// The field with the form's token.
fn csrf(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name=(FIELD) value=(visitor.form); }
}

/// A page that moves on to another one by itself. The next request then comes from the console's own site, whatever
/// site the browser came from. It is no form, since the content security policy would have to name its target.
fn onwards(place: &str, what: &str) -> Response {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (what) " · linerate" }
                meta http-equiv="refresh" content={ "0;url=" (place) };
                link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::path("console.css"));
            }
            body { main #content { p { a href=(place) { (what) } } } }
        }
    };
    markup_response(StatusCode::OK, markup, Reader::Stranger)
}

/// A page that repeats the request for one of the console's pages.
pub(crate) fn again(place: &str) -> Response {
    onwards(if sign_in::is_ours(place) { place } else { "/" }, "On to the console")
}

/// The answer to a visitor who may not see a page.
pub(crate) fn refused(status: StatusCode, why: &str) -> Response {
    let content = html! {
        h1 { (status.canonical_reason().unwrap_or("Refused")) }
        p role="alert" { (why) }
        p { a href="/" { "To the overview" } }
    };
    document(status, "Refused", html! {}, content, Reader::Stranger)
}

/// The answer if there is no such page.
pub(crate) async fn missing(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    let content = html! {
        h1 { "There is no such page" }
        p { a href="/" { "To the overview" } }
    };
    page(StatusCode::NOT_FOUND, (&app, &visitor), (Screen::None, "Not found"), content)
}

/// The answer if a page doesn't support the request's method.
pub(crate) async fn wrong_method() -> Response {
    refused(StatusCode::METHOD_NOT_ALLOWED, "this page is not asked for in this way")
}

/// links' API with this visitor's key.
fn links<'a>(app: &'a App, visitor: &'a Visitor) -> Result<Links<'a>, upstream::Error> {
    let Some(upstream) = &app.links else { return Err(absent("linerate-links (--links none)")) };
    let key = visitor.grant.as_ref().and_then(|grant| grant.links.as_deref());
    key.map(|token| Links { upstream, token }).ok_or_else(|| needed("linerate-links"))
}

/// linerate-api's users with this visitor's key.
fn users<'a>(app: &'a App, visitor: &'a Visitor) -> Result<Users<'a>, upstream::Error> {
    let Some(upstream) = &app.users else { return Err(absent("the users of linerate-api (--users none)")) };
    let token = visitor.grant.as_ref().and_then(|grant| grant.api.as_deref());
    // Requests without a key are allowed if nobody has to sign in, or if `users_without_key` is set.
    let anybody = app.open.is_some() || app.users_without_key;
    if token.is_some() || anybody { Ok(Users { upstream, token }) } else { Err(needed("linerate-api")) }
}

fn absent(what: &str) -> upstream::Error {
    upstream::Error::Refused(Box::new(Problem::not_found(format!("this console was started without {what}"))))
}

fn needed(what: &str) -> upstream::Error {
    upstream::Error::Refused(Box::new(Problem::unauthorized(format!("a key of {what} is needed"))))
}

/// The page for a request that a service refused or didn't answer.
fn failed(
    (app, visitor): (&App, &Visitor),
    (screen, title): (Screen, &str),
    error: &upstream::Error,
) -> Response {
    let status = match error {
        upstream::Error::Down { .. } => StatusCode::SERVICE_UNAVAILABLE,
        upstream::Error::Strange { .. } => StatusCode::BAD_GATEWAY,
        upstream::Error::Refused(problem) => {
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_GATEWAY)
        }
    };
    if status == StatusCode::UNAUTHORIZED && visitor.session {
        let grant = visitor.grant.as_ref();
        // The service no longer accepts the key or token.
        match (screen, grant.and_then(|grant| grant.api.as_deref())) {
            (Screen::Users, None) => return access::ask_for_key(app, visitor, None),
            (Screen::Users, Some(key)) => {
                app.sessions.forget(key);
                return see_other("/users");
            }
            _ => {
                grant.inspect(|grant| app.sessions.end_refused(grant));
                return see_other("/sign-in");
            }
        }
    }
    let (heading, hint) = match status {
        StatusCode::NOT_FOUND => ("Not found", ""),
        StatusCode::FORBIDDEN => ("Not allowed", "The key that you have does not allow this."),
        StatusCode::SERVICE_UNAVAILABLE => {
            ("Not now", "Everything else goes on. Load this page again once it answers.")
        }
        _ => (title, ""),
    };
    let content = html! {
        h1 { (heading) }
        div.alert role="alert" { p { (error) } @if !hint.is_empty() { p { (hint) } } }
        p { button.again type="button" hidden { "Load again" } }
    };
    page(status, (app, visitor), (screen, title), content)
}

/// A file to download.
fn attachment(media_type: &'static str, name: &str, body: axum::body::Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
    response.headers_mut().insert(HeaderName::from_static("content-disposition"), disposition);
    response
}
