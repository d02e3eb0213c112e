//! Signing in and out.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::header;
use maud::html;

use super::{csrf, document, see_other};
use crate::app::App;
use crate::fields::Fields;
use crate::keys::{self, KEY_BYTES, KeyOf};
use crate::session::Grant;
use crate::visitor::{self, Visitor};

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if visitor.grant.is_some() {
        return see_other(back(&fields));
    }
    show(StatusCode::OK, &app, &visitor, &fields, None)
}

/// Begins a session for whoever has a key of links.
pub(crate) async fn sign_in(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let key = fields.get("key").trim();
    if let Err((status, why)) = keys::check(&app, &visitor, KeyOf::Links, key).await {
        return show(status, &app, &visitor, &fields, Some(&why));
    }
    // A new one, so that nobody could have set it beforehand.
    let begun =
        app.sessions.begin(Grant { links: Some(key.to_owned()), api: None }, visitor.address, Instant::now());
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

/// Ends the session, or all of the same key.
pub(crate) async fn sign_out(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Some(grant) = visitor.grant.filter(|_| fields.has("everywhere")) {
        app.sessions.end_all(&grant);
    }
    app.sessions.end(&visitor.cookie);
    let mut response = see_other("/sign-in");
    response.headers_mut().insert(header::SET_COOKIE, visitor::set_cookie("", visitor.secure, 0));
    response
}

/// Where one wanted to: a path of ours and nothing else, since browsers take `//host` and `/\host` for one of another's.
pub(super) fn back(fields: &Fields) -> &str {
    let next = fields.get("next");
    let ours = next.starts_with('/')
        && !next.starts_with("//")
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if ours { next } else { "/" }
}

fn show(status: StatusCode, app: &App, visitor: &Visitor, fields: &Fields, why: Option<&str>) -> Response {
    let content = html! {
        div.sign-in {
            h1 { "Sign in" }
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
    document(status, "Sign in", html! {}, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for (next, expected) in [
            ("/links?q=a", "/links?q=a"),
            ("", "/"),
            ("links", "/"),
            ("//evil.example/", "/"),
            ("/\\evil.example/", "/"),
            ("https://evil.example/", "/"),
            ("/a\nb", "/"),
        ] {
            let query = crate::fields::query(&[("next", next)]);
            assert_eq!(back(&Fields::parse(query.as_bytes())), expected, "{next:?}");
        }
    }
}
