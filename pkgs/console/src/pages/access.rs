//! Access: this session's keys, all sessions, the services' keys, and recent writes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::operation::may_see_all;
use super::sign_in::back;
use super::{Screen, csrf, history, page as shown, see_other, service_keys, sessions};
use crate::app::App;
use crate::audit::Wanted;
use crate::fields::Fields;
use crate::keys::{self, KEY_BYTES, KeyOf};
use crate::session::shown as shown_key;
use crate::visitor::Visitor;

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let content = html! {
        h1 { "Access" }
        @if app.open.is_none() {
            (own_keys(&app, &visitor))
            (sessions::section(&app, &visitor).await)
        } @else {
            p { "Nobody signs in here: everybody on this machine works by the keys that this console was started with." }
        }
        (service_keys::listed(&app, &visitor, &fields).await)
        (writes(&app, &visitor, &fields).await)
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Access, "Access"), content)
}

fn own_keys(app: &App, visitor: &Visitor) -> Markup {
    let grant = visitor.grant.clone().unwrap_or_default();
    html! {
        section aria-labelledby="own" {
            h2 #own { "Your keys" }
            dl.pairs.facts {
                @if let Some(user) = &grant.user { div { dt { "Signed in as" } dd { (user.name) } } }
                div { dt { "links" } dd { @match (&grant.user, &grant.links) {
                    (Some(_), Some(_)) => "by your issuer's token",
                    (_, Some(key)) => code { (shown_key(key)) },
                    (_, None) => "none",
                } } }
                @if app.users.is_some() { div { dt { "api" } dd {
                    @match &grant.api {
                        Some(_) if grant.user.is_some() && grant.api == grant.links => "by your issuer's token",
                        Some(key) => form.inline method="post" action="/access/key/drop" {
                            (csrf(visitor)) code { (shown_key(key)) } button.quiet { "Drop it" }
                        },
                        None => { "none: " a href="/access/key" { "add one" } },
                    }
                } } }
            }
            p.hint { "They are in the memory of this console alone, for as long as your session lives." }
        }
    }
}

/// Writes from the services' audit logs. They contain everybody's addresses, so only users who may write everything see
/// them.
async fn writes(app: &App, visitor: &Visitor, fields: &Fields) -> Markup {
    let name = fields.some("service").unwrap_or_default();
    let file = app.audits.iter().find(|file| file.service == name).or(app.audits.first());
    let found = match file {
        None => html! {
            p.hint {
                "This console is not told where services write down who wrote what: " code { "--links-audit FILE" } " and "
                code { "--api-audit FILE" } ", the files of their " code { "--audit-log" } "."
            }
        },
        Some(file) => match may_see_all(app, visitor).await {
            Ok(true) => {
                let text = |name: &str| fields.get(name).trim().to_owned();
                let wanted = Wanted { action: text("action"), target: text("target"), who: text("who") };
                html! { (filter(app, file.service, fields)) div #writes-found { (history::of(file, wanted).await) } }
            }
            Ok(false) => history::withheld(),
            Err(error) => html! { p.alert role="alert" { (error) } },
        },
    };
    html! { section aria-labelledby="writes" { h2 #writes { "Audit log" } (found) } }
}

fn filter(app: &App, service: &str, fields: &Fields) -> Markup {
    let field = |name: &str, label: &str, hint: &str| {
        html! {
            div.field {
                label for=(name) { (label) }
                input id=(name) type="text" name=(name) value=(fields.get(name)) placeholder=(hint) maxlength="300" spellcheck="false";
            }
        }
    };
    html! {
        form.search role="search" method="get" action="/access" {
            div.field {
                label for="service" { "Service" }
                select #service name="service" {
                    @for file in &app.audits { option value=(file.service) selected[file.service == service] { (file.service) } }
                }
            }
            (field("action", "What", "link.edit, user"))
            (field("target", "To", "a code or an id"))
            (field("who", "Who", "a key or an address"))
            button { "Filter" }
        }
    }
}

/// The page for adding a linerate-api key to a session.
pub(crate) async fn key(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    ask_for_key(&app, &visitor, None)
}

/// Adds a linerate-api key to a session.
pub(crate) async fn add_key(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let key = fields.get("key").trim();
    if let Err((status, why)) = keys::check(&app, &visitor, KeyOf::Api, key).await {
        return ask_for_key(&app, &visitor, Some((status, &why)));
    }
    app.sessions.change(&visitor.cookie, |grant| grant.api = Some(key.to_owned()));
    see_other(match fields.get("next") {
        "" => "/users",
        _ => back(&fields),
    })
}

/// Removes the linerate-api key from a session.
pub(crate) async fn drop_key(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    app.sessions.change(&visitor.cookie, |grant| grant.api = None);
    see_other("/access")
}

/// Asks for a linerate-api key if a page needs one.
pub(super) fn ask_for_key(app: &App, visitor: &Visitor, wrong: Option<(StatusCode, &str)>) -> Response {
    let why = wrong.map(|(_, why)| why);
    let content = html! {
        div.sign-in {
            h1 { "A key for the users" }
            @if !visitor.session {
                p role="alert" {
                    "linerate-api asks for a key, and this console was started without one: " code { "LINERATE_CONSOLE_API_TOKEN" }
                }
            } @else {
                p {
                    "You are signed in by a key of linerate-links, which says nothing of what you may do with users: they are "
                    "shown to whoever has a key of linerate-api."
                }
                form method="post" action="/access/key" {
                    (csrf(visitor))
                    label for="key" { "Key of linerate-api" }
                    input #key name="key" type="password" autocomplete="off" required autofocus maxlength=(KEY_BYTES)
                        spellcheck="false" aria-invalid=[why.map(|_| "true")]
                        aria-describedby={ "key-hint" @if why.is_some() { " key-error" } };
                    @if let Some(why) = why { p.error #key-error role="alert" { (why) } }
                    p.hint #key-hint { code { "linerate-api key add NAME --scope write" } }
                    button.primary { "Add the key" }
                }
            }
        }
    };
    let status = wrong.map_or(StatusCode::OK, |(status, _)| status);
    shown(status, (app, visitor), (Screen::Users, "A key for the users"), content)
}
