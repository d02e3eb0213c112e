//! The list of links.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::list::{Column, List};
use super::{SEARCH_TRIGGER, Screen, csrf, failed, links, page as shown, see_other, text};
use crate::app::App;
use crate::fields::{Fields, query};
use crate::links::{Domain, Link, Listing};
use crate::upstream;
use crate::visitor::Visitor;

/// Links per page.
const PAGE: &str = "50";

/// How long links may search, in milliseconds: half of the time in which a page should appear.
const WITHIN: &str = "50";

/// How long links may search after a page has already said that nothing has been found yet.
const WITHIN_FURTHER: &str = "1000";

/// The most links that one form can change: twice as many as on a page.
const BULK: usize = 100;

/// Parameters that filter and sort the list. They stay the same from page to page.
const KEPT: [&str; 5] = ["q", "tag", "domain", "status", "sort"];

const LIST: List = List { path: "/links", kept: &KEPT, order: "-created" };

const COLUMNS: [Column; 3] = [
    Column { name: "code", words: "Code", first: "code", class: None },
    Column { name: "clicks", words: "Clicks", first: "-clicks", class: Some("number") },
    Column { name: "created", words: "Created", first: "-created", class: None },
];

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let asked = (Screen::Links, "Links");
    let api = match links(&app, &visitor) {
        Ok(api) => api,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    let within = if fields.has("further") { WITHIN_FURTHER } else { WITHIN };
    let parameters = KEPT.into_iter().chain(["cursor"]).map(|name| (name, fields.get(name).trim()));
    let parameters: Vec<_> = parameters.chain([("limit", PAGE), ("within", within)]).collect();
    let (listing, domains) = tokio::join!(api.list(&parameters), api.domains());
    // A key that is restricted to some domains may not be allowed to list the others.
    let domains = domains.unwrap_or_default();
    match listing {
        Ok(listing) => {
            let content = list(&visitor, &fields, &listing, &domains);
            shown(StatusCode::OK, (&app, &visitor), asked, content)
        }
        // The cursor or the order is invalid: offer to start from the beginning.
        Err(upstream::Error::Refused(problem)) if [400, 422].contains(&problem.status) => {
            let content = html! {
                h1 { "Links" }
                p.alert role="alert" { (problem.detail) }
                p { a href="/links" { "To the whole list" } }
            };
            shown(StatusCode::BAD_REQUEST, (&app, &visitor), asked, content)
        }
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

fn list(visitor: &Visitor, fields: &Fields, listing: &Listing, domains: &[Domain]) -> Markup {
    let narrowed = ["q", "tag", "domain", "status"].iter().any(|name| fields.some(name).is_some());
    html! {
        div.heading {
            h1 { "Links" }
            div.buttons {
                a.button href="/links/import" { "Import, export" }
                a.button.primary href="/links/new" { "New link" }
            }
        }
        (search(fields, domains))
        div #list {
            @if let Some(done) = fields.some("done") {
                p.done role="status" { (text::number(done.parse().unwrap_or(0), "link", "links")) " done." }
            }
            p.hint role="status" {
                (text::number(listing.links.len(), "link", "links")) " on this page"
                @match (listing.looked_at, &listing.next) {
                    (Some(seen), _) => { ", of " (text::grouped(seen)) " that were looked at for it; there are more" }
                    (None, Some(_)) => { ", and there are more" }
                    (None, None) => {}
                }
            }
            @if let (true, Some(next)) = (listing.links.is_empty(), &listing.next) {
                (look_further(&format!("{}&further=on", LIST.place(fields, &[("cursor", next)]))))
            } @else if listing.links.is_empty() {
                p.empty {
                    @if narrowed { "Nothing is found. " a href="/links" { "All links" } }
                    @else { "There are no links yet. " a href="/links/new" { "Make the first" } }
                }
            } @else {
                form #bulk method="post" action="/links" {
                    (csrf(visitor))
                    @for name in KEPT { input type="hidden" name=(name) value=(fields.get(name)); }
                    (table(fields, &listing.links))
                    (bulk_bar())
                }
                (LIST.pager(fields, listing.next.as_deref()))
            }
        }
    }
}

fn search(fields: &Fields, domains: &[Domain]) -> Markup {
    let option = |name: &str, value: &str, words: &str| {
        html! { option value=(value) selected[fields.get(name) == value] { (words) } }
    };
    html! {
        form.search role="search" method="get" action="/links" hx-get="/links" hx-target="#list" hx-select="#list"
            hx-swap="outerHTML" hx-push-url="true" hx-sync="this:replace"
            hx-trigger=(SEARCH_TRIGGER) {
            div.field.wide {
                label for="q" { "Search" }
                input #q type="search" name="q" value=(fields.get("q")) placeholder="code, target or title" maxlength="8000";
            }
            div.field {
                label for="tag" { "Tag" }
                input #tag type="text" name="tag" value=(fields.get("tag")) maxlength="64";
            }
            @if !domains.is_empty() {
                div.field {
                    label for="domain" { "Domain" }
                    select #domain name="domain" {
                        (option("domain", "", "all")) (option("domain", "default", "default"))
                        @for domain in domains { (option("domain", &domain.host, &domain.host)) }
                    }
                }
            }
            div.field {
                label for="status" { "Status" }
                select #status name="status" {
                    (option("status", "", "any")) (option("status", "active", "active"))
                    (option("status", "disabled", "disabled"))
                }
            }
            div.field {
                label for="sort" { "Sort" }
                select #sort name="sort" {
                    (option("sort", "", "newest first")) (option("sort", "created", "oldest first"))
                    (option("sort", "-updated", "edited last")) (option("sort", "-clicks", "most clicks"))
                    (option("sort", "clicks", "fewest clicks")) (option("sort", "code", "code"))
                    (option("sort", "-code", "code, backwards"))
                }
            }
            button { "Search" }
        }
    }
}

fn table(fields: &Fields, links: &[Link]) -> Markup {
    let [code, clicks, created] = COLUMNS.map(|column| LIST.heading(fields, &column));
    html! {
        table.links.cards {
            thead { tr {
                th scope="col" { span.unseen { "Chosen" } input #all type="checkbox" aria-label="Choose all" hidden; }
                (code) th scope="col" { "Target" } th scope="col" { "Tags" } (clicks) (created)
            } }
            tbody { @for link in links { (row(link)) } }
        }
    }
}

fn row(link: &Link) -> Markup {
    let chosen = format!("{}/{}", link.domain.as_deref().unwrap_or_default(), link.code);
    html! {
        tr {
            td.choose { input type="checkbox" name="link" value=(chosen) aria-label={ "Choose " (link.code) }; }
            th scope="row" {
                a href=(place(link, "")) { @if let Some(domain) = &link.domain { span.hint { (domain) "/" } } (link.code) }
                @if link.status == "disabled" { " " span.badge { "disabled" } }
                @if link.protected { " " span.badge { "password" } }
            }
            td.target data-label="Target" {
                @if let Some(title) = &link.title { bdi.title { (title) } }
                bdi.url title=(link.target) { (link.target) }
            }
            td data-label="Tags" { @for tag in &link.tags {
                a.tag href={ "/links?" (query(&[("tag", tag)])) } { bdi { (tag) } } " "
            } }
            td.number data-label="Clicks" { (text::grouped(link.clicks)) @if let Some(most) = link.max_clicks { span.hint { " of " (text::grouped(most)) } } }
            td data-label="Created" { (text::instant(&link.created_at)) }
        }
    }
}

fn bulk_bar() -> Markup {
    html! {
        fieldset.bulk {
            legend { "With the chosen links" }
            div.field {
                label for="action" { "Do" }
                select #action name="action" {
                    option value="" { "nothing" }
                    option value="disable" { "disable" } option value="enable" { "enable" }
                    option value="tag" { "add the tag" } option value="untag" { "remove the tag" }
                    option value="expire" { "have them expire" } option value="keep" { "have them never expire" }
                    option value="delete" { "delete" }
                }
            }
            div.field {
                label for="with-tag" { "Tag" }
                input #with-tag type="text" name="with-tag" maxlength="64";
            }
            div.field {
                label for="until" { "Expires" }
                input #until type="text" name="until" maxlength="64" placeholder="2030-01-31, or 7d";
            }
            button { "Do it" }
        }
    }
}

/// The search has found nothing within its time limit. With scripts, the browser continues to search until something is
/// found, the list ends, or the user searches for something else.
fn look_further(place: &str) -> Markup {
    html! {
        p.empty {
            "Nothing is found so far. "
            a rel="next" href=(place) hx-get=(place) hx-trigger="load, click" hx-target="#list" hx-select="#list" hx-swap="outerHTML"
                hx-replace-url="true" hx-sync="form.search:abort" { "Look further" }
        }
    }
}

/// The address of a link's page, or of another page about it.
pub(super) fn place(link: &Link, what: &str) -> String {
    at(&link.code, link.domain.as_deref().unwrap_or_default(), what)
}

/// The same for a code and a domain.
pub(super) fn at(code: &str, domain: &str, what: &str) -> String {
    // Valid codes need no escapes in a path, but this one may be invalid.
    let code: String = url::form_urlencoded::byte_serialize(code.as_bytes()).collect();
    let domain = query(&[("domain", domain)]);
    let mark = if domain.is_empty() { "" } else { "?" };
    format!("/link/{}{what}{mark}{domain}", code.replace('+', "%20"))
}

/// Performs the same action on several links.
pub(crate) async fn bulk(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let fields = &fields;
    let asked = (Screen::Links, "Links");
    let api = match links(&app, &visitor) {
        Ok(api) => api,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    let chosen: Vec<(&str, &str)> = fields.all("link").filter_map(|link| link.split_once('/')).collect();
    let action = Action::of(fields);
    let wrong = match &action {
        _ if chosen.is_empty() => Some("No link is chosen."),
        _ if chosen.len() > BULK => Some("These are too many at once."),
        Ok(Action::Delete) if !fields.has("sure") => return ask_delete(&app, &visitor, fields, &chosen),
        Ok(_) => None,
        Err(wrong) => Some(*wrong),
    };
    let (None, Ok(action)) = (wrong, action) else {
        return not_done(&app, &visitor, fields, wrong.unwrap_or_default());
    };
    let outcomes = match action {
        Action::Delete => api.delete_many(&chosen).await,
        Action::Edit(change) => api.edit_many(&chosen, change).await,
    };
    match outcomes {
        Ok(outcomes) => {
            let failed: Vec<_> =
                chosen.iter().zip(outcomes).filter_map(|(link, outcome)| Some((link, outcome?))).collect();
            let done = chosen.len() - failed.len();
            if failed.is_empty() {
                return see_other(&LIST.place(fields, &[("done", &done.to_string())]));
            }
            shown(StatusCode::OK, (&app, &visitor), asked, report(fields, done, &failed))
        }
        // The change itself is invalid, for instance because of a tag.
        Err(upstream::Error::Refused(problem)) if [400, 422].contains(&problem.status) => {
            let field = problem.errors.first().map(|error| error.detail.as_str());
            not_done(&app, &visitor, fields, field.unwrap_or(&problem.detail))
        }
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

/// The action on the selected links.
enum Action {
    Delete,
    /// An edit, in the format of links' API.
    Edit(Map<String, Value>),
}

impl Action {
    /// Reads the action from a form, or returns what is wrong with it.
    fn of(fields: &Fields) -> Result<Self, &'static str> {
        let tag = || {
            fields
                .some("with-tag")
                .map(|tag| json!([tag]))
                .ok_or("Which tag? There is a field for it beside.")
        };
        let (name, value) = match fields.get("action") {
            "delete" => return Ok(Self::Delete),
            "disable" => ("set", json!({ "status": "disabled" })),
            "enable" => ("set", json!({ "status": "active" })),
            "expire" => {
                let until =
                    fields.some("until").ok_or("When do they expire? There is a field for it beside.")?;
                ("set", json!({ "expires_at": until }))
            }
            "keep" => ("set", json!({ "expires_at": null })),
            "tag" => ("add_tags", tag()?),
            "untag" => ("remove_tags", tag()?),
            _ => return Err("Choose what is to be done with them."),
        };
        Ok(Self::Edit(Map::from_iter([(name.to_owned(), value)])))
    }
}

fn not_done(app: &App, visitor: &Visitor, fields: &Fields, wrong: &str) -> Response {
    let content = html! {
        h1 { "Nothing was done" }
        p.alert role="alert" { (wrong) }
        p { a href=(LIST.place(fields, &[])) { "Back to the list" } }
    };
    shown(StatusCode::UNPROCESSABLE_ENTITY, (app, visitor), (Screen::Links, "Links"), content)
}

/// What couldn't be done, and the reasons.
fn report(fields: &Fields, done: usize, failed: &[(&(&str, &str), String)]) -> Markup {
    html! {
        h1 { (text::number(done, "link", "links")) " done, " (failed.len()) " not" }
        table.cards {
            thead { tr { th scope="col" { "Link" } th scope="col" { "Why not" } } }
            tbody { @for ((domain, code), why) in failed {
                tr { th scope="row" { bdi { @if !domain.is_empty() { (domain) "/" } (code) } } td data-label="Why not" { (why) } }
            } }
        }
        p { a.button href=(LIST.place(fields, &[])) { "Back to the list" } }
    }
}

/// Asks for confirmation before links and their clicks are deleted.
fn ask_delete(app: &App, visitor: &Visitor, fields: &Fields, chosen: &[(&str, &str)]) -> Response {
    let what = text::number(chosen.len(), "link", "links");
    let content = html! {
        h1 { "Delete " (what) "?" }
        p { "Their clicks are deleted with them. Nothing brings them back." }
        form method="post" action="/links" {
            (csrf(visitor))
            @for name in KEPT { input type="hidden" name=(name) value=(fields.get(name)); }
            input type="hidden" name="action" value="delete";
            ul { @for (domain, code) in chosen {
                li {
                    input type="hidden" name="link" value={ (domain) "/" (code) };
                    @if !domain.is_empty() { (domain) "/" } (code)
                }
            } }
            button.danger name="sure" value="yes" { "Delete " (what) }
            " " a.button href=(LIST.place(fields, &[])) { "Keep them" }
        }
    };
    shown(StatusCode::OK, (app, visitor), (Screen::Links, "Delete links"), content)
}
