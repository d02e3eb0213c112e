//! The services' keys: lists them, creates new ones and shows their secret once, and revokes them after a confirmation.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use service::problem::Problem;

use super::form::Faults;
use super::{Screen, absent, csrf, failed, needed, operation, page as shown, page_once, see_other, text};
use crate::app::App;
use crate::fields::Fields;
use crate::keys::KeyOf;
use crate::service_keys::{Key, Keys, Made};
use crate::upstream::Error;
use crate::visitor::Visitor;

/// The shell command that creates a key.
fn command(of: KeyOf) -> &'static str {
    match of {
        KeyOf::Links => "linerate-links key add NAME --scope write",
        KeyOf::Api => "linerate-api key add NAME --scope write",
    }
}

/// A client for a service's keys, with this visitor's key.
fn keys<'a>(app: &'a App, visitor: &'a Visitor, of: KeyOf) -> Result<Keys<'a>, Error> {
    // A new key outlives this console, so only users with their own key may create one.
    if app.open.is_some() {
        let why = "keys are made and revoked by whoever signs in, and nobody signs in to this console";
        return Err(Error::Refused(Box::new(Problem::forbidden(why))));
    }
    let grant = visitor.grant.as_ref();
    let (upstream, token, name) = match of {
        KeyOf::Links => (&app.links, grant.and_then(|grant| grant.links.as_deref()), "linerate-links"),
        KeyOf::Api => (&app.users, grant.and_then(|grant| grant.api.as_deref()), "linerate-api"),
    };
    let upstream = upstream.as_ref().ok_or_else(|| absent(name))?;
    token.map(|token| Keys { of, upstream, token }).ok_or_else(|| needed(name))
}

/// The service with this name, which comes from a path or a form.
fn of(name: &str) -> Result<KeyOf, Error> {
    let all = [KeyOf::Links, KeyOf::Api];
    let found = all.into_iter().find(|of| of.name() == name);
    found.ok_or_else(|| Error::Refused(Box::new(Problem::not_found("there is no such service"))))
}

/// A client for the service with this name, or the page that says why there is none.
fn begun<'a>(app: &'a App, visitor: &'a Visitor, name: &str, title: &str) -> Result<Keys<'a>, Box<Response>> {
    let of = of(name).map_err(|error| Box::new(failed((app, visitor), (Screen::Access, title), &error)))?;
    keys(app, visitor, of).map_err(|error| Box::new(not_done(app, visitor, of, title, &error)))
}

/// The page for an error. If the linerate-api key is no longer valid, the session keeps the rest of its grant.
fn not_done(app: &App, visitor: &Visitor, of: KeyOf, title: &str, error: &Error) -> Response {
    let screen = if of == KeyOf::Api { Screen::Users } else { Screen::Access };
    failed((app, visitor), (screen, title), error)
}

/// The keys of all services.
pub(super) async fn listed(app: &App, visitor: &Visitor, fields: &Fields) -> Markup {
    html! {
        section aria-labelledby="keys" {
            h2 #keys { "Keys of services" }
            @if fields.has("revoked") { p.done role="status" { "Revoked." } }
            @if app.open.is_some() {
                p.hint { "They are made and revoked here by whoever signs in. In a shell:" }
                div.two { @for of in [KeyOf::Links, KeyOf::Api] { pre tabindex="0" { code { (command(of)) } } } }
            } @else {
                @if app.links.is_some() { (one(app, visitor, KeyOf::Links).await) }
                @if app.users.is_some() { (one(app, visitor, KeyOf::Api).await) }
                p.hint { "A revoked key ends at once, and sessions by a key of links within five seconds." }
            }
        }
    }
}

/// A service's keys.
async fn one(app: &App, visitor: &Visitor, of: KeyOf) -> Markup {
    let found = match keys(app, visitor, of) {
        Ok(keys) => keys.list().await,
        Err(error) => Err(error),
    };
    let name = of.name();
    html! {
        h3 id={ "keys-" (name) } { (name) }
        @match found {
            Ok(keys) => { (table(of, &keys)) p { a.button href={ "/access/keys/" (name) "/new" } { "New key of " (name) } } },
            Err(Error::Refused(problem)) if [401, 403].contains(&problem.status) => p.hint {
                "They are for those whose key of linerate-" (name) " may write everything (" (problem.detail) "). In a shell: "
                code { (command(of)) }
            },
            Err(error) => p.alert role="alert" { (error) },
        }
    }
}

fn table(of: KeyOf, keys: &[Key]) -> Markup {
    let links = of == KeyOf::Links;
    html! {
        table.cards aria-labelledby={ "keys-" (of.name()) } {
            thead { tr {
                th scope="col" { "Name" } th scope="col" { "Scope" }
                @if links { th scope="col" { "Domains" } } @else { th scope="col" { "Rate" } }
                th scope="col" { "Made" } th scope="col" { "Ends" }
                th scope="col" { "Last used" }
                th scope="col" { span.unseen { "Revoke" } }
            } }
            tbody { @for key in keys { tr {
                th scope="row" { bdi { (key.name) } }
                td data-label="Scope" { (key.scope) }
                @if links {
                    td data-label="Domains" { @match &key.domains { Some(domains) => (domains.join(" ")), None => "all" } }
                } @else {
                    td data-label="Rate" { @match key.rate { Some(rate) => { (rate) "/s" }, None => "any" } }
                }
                td data-label="Made" { (text::instant(&key.created_at)) }
                td data-label="Ends" { @match &key.expires_at { Some(at) => (text::instant(at)), None => "never" } }
                td data-label="Last used" { @match &key.last_used_at { Some(at) => (text::instant(at)), None => "never" } }
                td { a.button.quiet href={ "/access/keys/" (of.name()) "/" (key.id) "/revoke" } {
                    "Revoke" span.unseen { " " bdi { (key.name) } }
                } }
            } } }
        }
    }
}

/// The values of a form.
#[derive(Default)]
struct Form {
    name: String,
    scope: String,
    domains: String,
    rate: String,
    expires_at: String,
}

impl Form {
    fn of_fields(fields: &Fields) -> Self {
        let text = |name: &str| fields.get(name).trim().to_owned();
        Self {
            name: text("name"),
            scope: text("scope"),
            domains: text("domains"),
            rate: text("rate"),
            expires_at: text("expires_at"),
        }
    }

    /// The fields in the format of the service's API, without empty ones.
    fn key(&self, of: KeyOf) -> Map<String, Value> {
        let mut key = Map::new();
        key.insert("name".into(), json!(self.name));
        key.insert("scope".into(), json!(self.scope));
        let domains: Vec<&str> = self.domains.split([' ', ',']).filter(|domain| !domain.is_empty()).collect();
        if of == KeyOf::Links && !domains.is_empty() {
            key.insert("domains".into(), json!(domains));
        }
        if of == KeyOf::Api && !self.rate.is_empty() {
            // If it isn't a number, send it unchanged: the API reports this together with all other errors.
            let rate = self.rate.parse::<u32>().map_or_else(|_| json!(self.rate), |rate| json!(rate));
            key.insert("rate".into(), rate);
        }
        if !self.expires_at.is_empty() {
            key.insert("expires_at".into(), json!(instant(&self.expires_at)));
        }
        key
    }
}

/// The start of a day, since the API doesn't accept a date without a time.
fn instant(text: &str) -> String {
    let is_day = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_day { format!("{text}T00:00:00Z") } else { text.to_owned() }
}

/// The form for a new key.
pub(crate) async fn new(
    State(app): State<Arc<App>>,
    Path(service): Path<String>,
    visitor: Visitor,
) -> Response {
    match begun(&app, &visitor, &service, "New key") {
        Ok(keys) => {
            let form = Form { scope: "read".to_owned(), ..Form::default() };
            ask(&app, &visitor, keys.of, &form, None)
        }
        Err(response) => *response,
    }
}

/// Creates a key. Only this response contains its secret.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Path(service): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let keys = match begun(&app, &visitor, &service, "New key") {
        Ok(keys) => keys,
        Err(response) => return *response,
    };
    let form = Form::of_fields(&fields);
    let made = keys.create(&form.key(keys.of)).await;
    let target = match &made {
        Ok(made) => format!("{service}/{}", made.info.id),
        Err(_) => service.clone(),
    };
    operation::note(&app, &visitor, "key.create", &target, made.is_ok()).await;
    match made {
        Ok(made) => show(&app, &visitor, keys.of, &made),
        Err(Error::Refused(problem)) if [400, 422].contains(&problem.status) => {
            ask(&app, &visitor, keys.of, &form, Some(&problem))
        }
        Err(error) => not_done(&app, &visitor, keys.of, "New key", &error),
    }
}

fn ask(app: &App, visitor: &Visitor, of: KeyOf, form: &Form, wrong: Option<&Problem>) -> Response {
    let faults = Faults::new(wrong);
    let place = format!("/access/keys/{}/new", of.name());
    let fields = html! {
        form.edit method="post" action=(place) {
            (csrf(visitor))
            (faults.text("name", "Name", "What it is for: who lists the keys reads it.", &form.name, 400))
            (faults.select("scope", "Scope", &form.scope, &[("read", "read"), ("write", "write, which includes read")]))
            @match of {
                KeyOf::Links => (faults.text("domains", "Domains", "Hosts with spaces between; \"default\" is the one without a name. Empty: all.", &form.domains, 8192)),
                KeyOf::Api => (faults.text("rate", "Requests a second", "0 for as many as it likes. Empty: 100.", &form.rate, 10)),
            }
            (faults.text("expires_at", "Ends", "A date (2030-01-31), an instant (RFC 3339), or a span from now (90d). Empty: never, or with the key that you have.", &form.expires_at, 64))
            div.buttons {
                button.primary { "Make the key" }
                a.button href="/access" { "Leave it" }
            }
        }
    };
    let content = html! { h1 { "New key of " (of.name()) } (faults.summary()) (fields) };
    let status = if wrong.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    shown(status, (app, visitor), (Screen::Access, "New key"), content)
}

fn show(app: &App, visitor: &Visitor, of: KeyOf, made: &Made) -> Response {
    let Made { key, info } = made;
    let content = html! {
        h1 { "The key of " (of.name()) " is made" }
        p role="status" { "This is the key " bdi { (info.name) } ". It is shown this once: keep it now, for nothing has it but this page." }
        pre tabindex="0" role="group" aria-label="The key" { code { (key) } }
        dl.pairs.facts {
            div { dt { "Scope" } dd { (info.scope) } }
            @if let Some(domains) = &info.domains { div { dt { "Domains" } dd { (domains.join(" ")) } } }
            div { dt { "Ends" } dd { @match &info.expires_at { Some(at) => (text::instant(at)), None => "never" } } }
        }
        p { a.button.primary href="/access" { "I have kept it" } }
    };
    page_once((app, visitor), (Screen::Access, "The key"), content)
}

/// Asks for confirmation before a key is revoked.
pub(crate) async fn ask_revoke(
    State(app): State<Arc<App>>,
    Path((service, id)): Path<(String, i64)>,
    visitor: Visitor,
) -> Response {
    let title = "Revoke key";
    let keys = match begun(&app, &visitor, &service, title) {
        Ok(keys) => keys,
        Err(response) => return *response,
    };
    let key = match keys.read(id).await {
        Ok(key) => key,
        Err(error) => return not_done(&app, &visitor, keys.of, title, &error),
    };
    let content = html! {
        h1 { "Revoke " bdi { (key.name) } "?" }
        p { "Whatever uses this key of " (service) " is refused from then on; nothing brings it back." }
        form method="post" action={ "/access/keys/" (service) "/" (id) "/revoke" } {
            (csrf(&visitor))
            button.danger { "Revoke" }
            " " a.button href="/access" { "Keep it" }
        }
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Access, title), content)
}

/// Revokes a key.
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Path((service, id)): Path<(String, i64)>,
    visitor: Visitor,
) -> Response {
    let title = "Revoke key";
    let keys = match begun(&app, &visitor, &service, title) {
        Ok(keys) => keys,
        Err(response) => return *response,
    };
    let revoked = keys.revoke(id).await;
    operation::note(&app, &visitor, "key.revoke", &format!("{service}/{id}"), revoked.is_ok()).await;
    match revoked {
        Ok(()) => see_other("/access?revoked=yes"),
        Err(error) => not_done(&app, &visitor, keys.of, title, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_what_each_service_takes() {
        let fields =
            Fields::parse(b"name=+ci+&scope=write&domains=a.example,+default&rate=5&expires_at=2130-01-31");
        let form = Form::of_fields(&fields);
        assert_eq!(
            Value::Object(form.key(KeyOf::Links)),
            json!({ "name": "ci", "scope": "write", "domains": ["a.example", "default"], "expires_at": "2130-01-31T00:00:00Z" })
        );
        assert_eq!(
            Value::Object(form.key(KeyOf::Api)),
            json!({ "name": "ci", "scope": "write", "rate": 5, "expires_at": "2130-01-31T00:00:00Z" })
        );
        let form = Form::of_fields(&Fields::parse(b"name=ci&scope=read&expires_at=90d&rate=many"));
        assert_eq!(
            Value::Object(form.key(KeyOf::Links)),
            json!({ "name": "ci", "scope": "read", "expires_at": "90d" })
        );
        assert_eq!(form.key(KeyOf::Api)["rate"], "many");
    }
}
