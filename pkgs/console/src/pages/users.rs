//! The list of users.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::list::{Column, List};
use super::{SEARCH_TRIGGER, Screen, failed, page as shown, text, users};
use crate::app::App;
use crate::fields::{Fields, query};
use crate::upstream;
use crate::users::{Listing, User};
use crate::visitor::Visitor;

/// Users per page.
const PAGE: &str = "50";

/// Parameters that filter and sort the list. They stay the same from page to page.
const KEPT: [&str; 4] = ["q", "status", "tag", "sort"];

/// The default order.
const NEWEST: &str = "-created_at";

const LIST: List = List { path: "/users", kept: &KEPT, order: NEWEST };

const COLUMNS: [Column; 3] = [
    Column { name: "name", words: "Name", first: "name", class: None },
    Column { name: "email", words: "Email", first: "email", class: None },
    Column { name: "created_at", words: "Created", first: "created_at", class: None },
];

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let asked = (Screen::Users, "Users");
    let api = match users(&app, &visitor) {
        Ok(api) => api,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    let parameters = KEPT.into_iter().chain(["cursor"]).map(|name| match (name, fields.some(name)) {
        ("sort", None) => (name, NEWEST),
        (name, value) => (name, value.unwrap_or_default()),
    });
    let parameters: Vec<_> = parameters.chain([("limit", PAGE)]).collect();
    match api.list(&parameters).await {
        Ok(listing) => shown(StatusCode::OK, (&app, &visitor), asked, list(&fields, &listing, None)),
        // A parameter is invalid: show the message, and keep what was typed.
        Err(upstream::Error::Refused(problem)) if [400, 422].contains(&problem.status) => {
            let content = list(&fields, &Listing::default(), Some(&problem.detail));
            shown(StatusCode::BAD_REQUEST, (&app, &visitor), asked, content)
        }
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

fn list(fields: &Fields, listing: &Listing, wrong: Option<&str>) -> Markup {
    let narrowed = ["q", "status", "tag", "cursor"].iter().any(|name| fields.some(name).is_some());
    html! {
        div.heading {
            h1 { "Users" }
            div.buttons { a.button.primary href="/users/new" { "New user" } }
        }
        (search(fields))
        div #list {
            @if fields.has("deleted") { p.done role="status" { "1 user deleted." } }
            @if let Some(wrong) = wrong {
                p.alert role="alert" { (wrong) }
                p { a href="/users" { "To the whole list" } }
            } @else if listing.users.is_empty() {
                p.empty {
                    @if narrowed { "Nobody is found. " a href="/users" { "All users" } }
                    @else { "There are no users yet. " a href="/users/new" { "Make the first" } }
                }
            } @else {
                p.hint role="status" {
                    (text::number(listing.users.len(), "user", "users")) " on this page"
                    @if listing.next.is_some() { ", and there are more" }
                }
                (table(fields, &listing.users))
                (LIST.pager(fields, listing.next.as_deref()))
            }
        }
    }
}

fn search(fields: &Fields) -> Markup {
    let option = |name: &str, value: &str, words: &str| {
        html! { option value=(value) selected[fields.get(name) == value] { (words) } }
    };
    html! {
        form.search role="search" method="get" action="/users" hx-get="/users" hx-target="#list" hx-select="#list"
            hx-swap="outerHTML" hx-push-url="true" hx-sync="this:replace"
            hx-trigger=(SEARCH_TRIGGER) {
            div.field.wide {
                label for="q" { "Search" }
                input #q type="search" name="q" value=(fields.get("q")) placeholder="beginnings of words of name, email, tags or bio" maxlength="200";
            }
            div.field {
                label for="tag" { "Tag" }
                input #tag type="text" name="tag" value=(fields.get("tag")) maxlength="32";
            }
            div.field {
                label for="status" { "Status" }
                select #status name="status" {
                    (option("status", "", "any")) (option("status", "active", "active"))
                    (option("status", "invited", "invited")) (option("status", "suspended", "suspended"))
                }
            }
            div.field {
                label for="sort" { "Sort" }
                select #sort name="sort" {
                    (option("sort", "", "newest first")) (option("sort", "created_at", "oldest first"))
                    (option("sort", "-updated_at", "edited last")) (option("sort", "name", "name"))
                    (option("sort", "-name", "name, backwards")) (option("sort", "email", "email"))
                    (option("sort", "-email", "email, backwards"))
                }
            }
            button { "Search" }
        }
    }
}

fn table(fields: &Fields, users: &[User]) -> Markup {
    let [name, email, created] = COLUMNS.map(|column| LIST.heading(fields, &column));
    html! {
        table.cards {
            thead { tr {
                (name) (email) th scope="col" { "Status" } th scope="col" { "Tags" } (created)
            } }
            tbody { @for user in users { (row(user)) } }
        }
    }
}

fn row(user: &User) -> Markup {
    html! {
        tr {
            th scope="row" { a href={ "/user/" (user.id) } { bdi { (user.name) } } }
            td data-label="Email" { bdi { (user.email) } }
            td data-label="Status" { (status(&user.status)) }
            td data-label="Tags" { @for tag in &user.tags {
                a.tag href={ "/users?" (query(&[("tag", tag)])) } { (tag) } " "
            } }
            td data-label="Created" { (text::instant(&user.created_at)) }
        }
    }
}

/// A user's status; only suspended users get a colour.
pub(super) fn status(status: &str) -> Markup {
    let class = match status {
        "suspended" => "badge warning",
        _ => "badge",
    };
    html! { span class=(class) { (status) } }
}
