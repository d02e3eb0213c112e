//! A user's page, the history of writes to the user, and deletion.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;
use service::problem::Problem;

use super::operation::may_see_all;
use super::users::status;
use super::{Screen, csrf, failed, history, page as shown, see_other, text, users};
use crate::app::App;
use crate::audit::Wanted;
use crate::fields::{Fields, query};
use crate::upstream::Error;
use crate::users::{Document, Id};
use crate::visitor::Visitor;

/// The members of a profile and their labels.
pub(super) const PROFILE: [(&str, &str); 7] = [
    ("given_name", "First name"),
    ("family_name", "Last name"),
    ("birth_date", "Born"),
    ("phone", "Telephone"),
    ("locale", "Language"),
    ("time_zone", "Time zone"),
    ("bio", "About"),
];

/// The members of an address.
pub(super) const ADDRESS: [(&str, &str); 8] = [
    ("label", "Label"),
    ("street", "Street"),
    ("city", "City"),
    ("region", "Region"),
    ("postal_code", "Postal code"),
    ("country", "Country"),
    ("latitude", "Latitude"),
    ("longitude", "Longitude"),
];

/// The ID in a path. A malformed ID gives the same error as an unknown one.
pub(super) fn id(text: &str) -> Result<Id, Error> {
    Id::parse(text).ok_or_else(|| Error::Refused(Box::new(Problem::not_found("there is no such user"))))
}

/// A member as text, empty if it is absent.
pub(super) fn member<'a>(of: &'a Document, name: &str) -> std::borrow::Cow<'a, str> {
    match of.get(name) {
        None | Some(Value::Null) => "".into(),
        Some(Value::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

pub(crate) async fn page(
    State(app): State<Arc<App>>,
    Path(path): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    match read(&app, &visitor, &path).await {
        Ok((id, user, _)) => {
            let title = member(&user, "name").into_owned();
            let history = written(&app, &visitor, &id).await;
            let content = show(&id, &user, fields.has("saved"), &history);
            shown(StatusCode::OK, (&app, &visitor), (Screen::Users, &title), content)
        }
        Err(error) => failed((&app, &visitor), (Screen::Users, "User"), &error),
    }
}

pub(super) async fn read(app: &App, visitor: &Visitor, path: &str) -> Result<(Id, Document, String), Error> {
    let id = id(path)?;
    let (user, seen) = users(app, visitor)?.read(&id).await?;
    Ok((id, user, seen))
}

fn show(id: &Id, user: &Document, saved: bool, history: &Markup) -> Markup {
    let addresses = user.get("addresses").and_then(Value::as_array);
    let addresses = addresses.into_iter().flatten().filter_map(Value::as_object);
    let preferences = user.get("preferences").and_then(|all| serde_json::to_string_pretty(all).ok());
    html! {
        div.heading {
            h1 { bdi { (member(user, "name")) } }
            (status(&member(user, "status")))
            div.buttons {
                a.button.primary href={ "/user/" (id.as_str()) "/edit" } { "Edit" }
                a.button.danger href={ "/user/" (id.as_str()) "/delete" } { "Delete" }
            }
        }
        @if saved { p.done role="status" { "Saved." } }
        div.two {
            (facts(user))
            @if let Some(profile) = user.get("profile").and_then(Value::as_object) {
                (members("Profile", profile, &PROFILE))
            }
            @for address in addresses { (members("Address", address, &ADDRESS)) }
        }
        @if let Some(preferences) = preferences {
            h2 { "Preferences" }
            pre tabindex="0" { code { (preferences) } }
        }
        section aria-labelledby="history" {
            h2 #history { "History" }
            (history)
        }
    }
}

/// The user's entries in the audit log, for visitors who may see the whole log.
async fn written(app: &App, visitor: &Visitor, id: &Id) -> Markup {
    let Some(file) = app.audit_of("api") else {
        return html! {
            p.hint {
                "Who wrote what is in the audit log of linerate-api, where it has one (" code { "--audit-log" }
                "); this console is not told where that is (" code { "--api-audit" } ")."
            }
        };
    };
    match may_see_all(app, visitor).await {
        Ok(true) => history::of(file, Wanted { target: id.as_str().to_owned(), ..Wanted::default() }).await,
        Ok(false) => history::withheld(),
        Err(error) => html! { p.alert role="alert" { (error) } },
    }
}

fn facts(user: &Document) -> Markup {
    let tags = user.get("tags").and_then(Value::as_array);
    let tags: Vec<&str> = tags.into_iter().flatten().filter_map(Value::as_str).collect();
    html! {
        dl.pairs.facts {
            div { dt { "Email" } dd { bdi { (member(user, "email")) } } }
            @if !tags.is_empty() {
                div { dt { "Tags" } dd { @for tag in tags { a.tag href={ "/users?" (query(&[("tag", tag)])) } { (tag) } " " } } }
            }
            div { dt { "Id" } dd { code { (member(user, "id")) } } }
            div { dt { "Version" } dd { (member(user, "version")) } }
            div { dt { "Created" } dd { (text::instant(&member(user, "created_at"))) } }
            div { dt { "Edited" } dd { (text::instant(&member(user, "updated_at"))) } }
        }
    }
}

/// The members that are present, with unknown ones last.
fn members(heading: &str, of: &Document, known: &[(&str, &str)]) -> Markup {
    let others = of.keys().filter(|name| !known.iter().any(|(known, _)| known == name));
    html! {
        dl.pairs.facts aria-label=(heading) {
            @for (name, words) in known.iter().filter(|(name, _)| of.contains_key(*name)) {
                div { dt { (words) } dd { bdi.long tabindex=[(*name == "bio").then_some("0")] { (member(of, name)) } } }
            }
            @for name in others { div { dt { bdi { (name) } } dd { bdi { (member(of, name)) } } } }
        }
    }
}

/// Asks for confirmation before a user is deleted.
pub(crate) async fn ask_delete(
    State(app): State<Arc<App>>,
    Path(path): Path<String>,
    visitor: Visitor,
) -> Response {
    let (id, user, seen) = match read(&app, &visitor, &path).await {
        Ok(read) => read,
        Err(error) => return failed((&app, &visitor), (Screen::Users, "Delete user"), &error),
    };
    let place = format!("/user/{}", id.as_str());
    let content = html! {
        h1 { "Delete " bdi { (member(&user, "name")) } "?" }
        p { bdi { (member(&user, "email")) } ": nothing brings this user back." }
        form method="post" action={ (place) "/delete" } {
            (csrf(&visitor))
            input type="hidden" name="seen" value=(seen);
            button.danger { "Delete" }
            " " a.button href=(place) { "Keep it" }
        }
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Users, "Delete user"), content)
}

/// Deletes a user, unless the user has changed since the confirmation page was shown.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(path): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let deleted = async { users(&app, &visitor)?.delete(&id(&path)?, fields.get("seen")).await };
    match deleted.await {
        Ok(()) => see_other("/users?deleted=yes"),
        Err(Error::Refused(problem)) if problem.status == 412 => {
            let content = html! {
                h1 { "Nothing was deleted" }
                p.alert role="alert" { "Somebody else has changed this user meanwhile." }
                p { a href={ "/user/" (path) } { "Look again" } }
            };
            shown(StatusCode::CONFLICT, (&app, &visitor), (Screen::Users, "Delete user"), content)
        }
        Err(error) => failed((&app, &visitor), (Screen::Users, "Delete user"), &error),
    }
}
