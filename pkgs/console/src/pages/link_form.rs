//! Forms for creating and editing a link. After an error, a form keeps what was typed and shows errors next to their
//! fields.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use service::problem::Problem;

use super::form::Faults;
use super::links::{at, place};
use super::{Screen, csrf, failed, links, page as shown, see_other};
use crate::app::App;
use crate::csrf::random;
use crate::fields::Fields;
use crate::links::{Domain, Link};
use crate::upstream::Error;
use crate::visitor::Visitor;

/// The content of a form: what was typed, or the link's current state.
#[derive(Default)]
struct Form {
    /// The link being edited; none when creating one.
    of: Option<(String, String)>,
    /// The tag of the link's state when the form was shown.
    seen: String,
    /// An idempotency key, so that a form that is sent twice creates only one link.
    once: String,
    domain: String,
    code: String,
    target: String,
    title: String,
    tags: String,
    disabled: bool,
    redirect: String,
    forward_query: bool,
    protected: bool,
    unprotect: bool,
    not_before: String,
    expires_at: String,
    max_clicks: String,
}

impl Form {
    fn of_link(link: &Link, seen: String) -> Self {
        Self {
            of: Some((link.code.clone(), link.domain.clone().unwrap_or_default())),
            seen,
            domain: link.domain.clone().unwrap_or_default(),
            code: link.code.clone(),
            target: link.target.clone(),
            title: link.title.clone().unwrap_or_default(),
            tags: link.tags.join(" "),
            disabled: link.status == "disabled",
            redirect: link.redirect.to_string(),
            forward_query: link.forward_query,
            protected: link.protected,
            not_before: link.not_before.clone().unwrap_or_default(),
            expires_at: link.expires_at.clone().unwrap_or_default(),
            max_clicks: link.max_clicks.map(|most| most.to_string()).unwrap_or_default(),
            ..Self::default()
        }
    }

    fn of_fields(fields: &Fields) -> Self {
        let text = |name| fields.get(name).trim().to_owned();
        Self {
            of: None,
            seen: text("seen"),
            once: text("once"),
            domain: text("domain"),
            code: text("code"),
            target: text("target"),
            title: text("title"),
            tags: text("tags"),
            disabled: fields.get("status") == "disabled",
            redirect: text("redirect"),
            forward_query: fields.has("forward_query"),
            protected: false,
            unprotect: fields.has("unprotect"),
            not_before: text("not_before"),
            expires_at: text("expires_at"),
            max_clicks: text("max_clicks"),
        }
    }

    /// The fields in the API's format, or an error that the console finds before it calls the API.
    fn values(&self, password: &str) -> Result<Map<String, Value>, Box<Problem>> {
        let number = |name: &str, text: &str| match text {
            "" => Ok(Value::Null),
            text => text.parse::<u64>().map(Value::from).map_err(|_| {
                let problem = Problem::unprocessable("a field is wrong");
                Box::new(problem.with_error(format!("/{name}"), "a number is needed"))
            }),
        };
        let optional = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let mut values = Map::new();
        values.insert("target".into(), json!(self.target));
        values.insert("title".into(), optional(&self.title));
        values.insert("tags".into(), self.tags.split_whitespace().map(Value::from).collect());
        values.insert("status".into(), json!(if self.disabled { "disabled" } else { "active" }));
        values.insert("redirect".into(), number("redirect", &self.redirect)?);
        values.insert("forward_query".into(), json!(self.forward_query));
        values.insert("not_before".into(), optional(&self.not_before));
        values.insert("expires_at".into(), optional(&self.expires_at));
        values.insert("max_clicks".into(), number("max_clicks", &self.max_clicks)?);
        if !password.is_empty() {
            values.insert("password".into(), json!(password));
        } else if self.unprotect {
            values.insert("password".into(), Value::Null);
        }
        Ok(values)
    }
}

pub(crate) async fn new(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    // A bookmarklet fills in the target and the title of a page.
    let mut form =
        Form { redirect: "307".into(), once: random().unwrap_or_default(), ..Form::of_fields(&fields) };
    form.redirect = fields.some("redirect").unwrap_or("307").to_owned();
    answer(&app, &visitor, &form, None).await
}

/// Creates a link.
pub(crate) async fn create(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let form = Form::of_fields(&fields);
    let api = match links(&app, &visitor) {
        Ok(api) => api,
        Err(error) => return failed((&app, &visitor), (Screen::Links, "New link"), &error),
    };
    let made = match form.values(fields.get("password")) {
        Ok(mut values) => {
            // Leave out empty values; the service has defaults for them.
            values.retain(|_, value| !value.is_null());
            for (name, value) in [("code", &form.code), ("domain", &form.domain)] {
                if !value.is_empty() {
                    values.insert(name.into(), json!(value));
                }
            }
            api.create(&values, &form.once).await
        }
        Err(problem) => Err(Error::Refused(problem)),
    };
    match made {
        Ok(link) => see_other(&place(&link, "")),
        Err(Error::Refused(problem)) if at_fault(&problem) => {
            // An idempotency key stays tied to the request that it was used with, so the form gets a new one.
            let form = Form { once: random().unwrap_or_default(), ..form };
            answer(&app, &visitor, &form, Some(&problem)).await
        }
        Err(error) => failed((&app, &visitor), (Screen::Links, "New link"), &error),
    }
}

pub(crate) async fn edit(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let asked = (Screen::Links, "Edit");
    let api = match links(&app, &visitor) {
        Ok(api) => api,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    match api.read(&code, fields.get("domain")).await {
        Ok((link, seen)) => answer(&app, &visitor, &Form::of_link(&link, seen), None).await,
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

/// Edits a link, unless somebody else has edited it in the meantime.
pub(crate) async fn save(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let domain = fields.get("domain").to_owned();
    let asked = (Screen::Links, "Edit");
    let api = match links(&app, &visitor) {
        Ok(api) => api,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    let (now, now_seen) = match api.read(&code, &domain).await {
        Ok(read) => read,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    let mut form =
        Form { of: Some((code.clone(), domain.clone())), code: code.clone(), ..Form::of_fields(&fields) };
    form.protected = now.protected;
    let saved = match form.values(fields.get("password")) {
        Ok(mut values) => {
            // Send only changed fields: an unchanged date in the past would be refused.
            let before = Form::of_link(&now, String::new()).values("").unwrap_or_default();
            values.retain(|name, value| before.get(name) != Some(value));
            api.edit((&code, &domain), &values, &form.seen).await
        }
        Err(problem) => Err(Error::Refused(problem)),
    };
    match saved {
        Ok(link) => see_other(&place(&link, "")),
        Err(Error::Refused(problem)) if problem.status == 412 => {
            let why = "somebody else has changed this link since this form was loaded; what you typed is still here, and saving \
                       once more puts it in the place of theirs";
            form.seen = now_seen;
            answer(&app, &visitor, &form, Some(&Problem::conflict(why))).await
        }
        Err(Error::Refused(problem)) if at_fault(&problem) => {
            answer(&app, &visitor, &form, Some(&problem)).await
        }
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

/// Whether to show the form again with the error.
fn at_fault(problem: &Problem) -> bool {
    [400, 409, 422].contains(&problem.status)
}

async fn answer(app: &App, visitor: &Visitor, form: &Form, problem: Option<&Problem>) -> Response {
    let domains = match (links(app, visitor), &form.of) {
        (Ok(api), None) => api.domains().await.unwrap_or_default(),
        _ => Vec::new(),
    };
    let status = problem.map_or(StatusCode::OK, |problem| {
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY)
    });
    let title = if form.of.is_some() { "Edit link" } else { "New link" };
    shown(status, (app, visitor), (Screen::Links, title), show(visitor, form, &domains, problem))
}

fn show(visitor: &Visitor, form: &Form, domains: &[Domain], problem: Option<&Problem>) -> Markup {
    let faults = Faults::new(problem);
    let places: Vec<(&str, &str)> = std::iter::once(("", "default"))
        .chain(domains.iter().map(|one| (one.host.as_str(), one.host.as_str())))
        .collect();
    let (heading, action, leave) = match &form.of {
        Some((code, domain)) => (format!("Edit {code}"), at(code, "", "/edit"), at(code, domain, "")),
        None => ("New link".to_owned(), "/links/new".to_owned(), "/links".to_owned()),
    };
    let fields = html! {
        form.sheet method="post" action=(action) {
            (csrf(visitor))
            input type="hidden" name="seen" value=(form.seen);
            input type="hidden" name="once" value=(form.once);
            (faults.field("target", "Target", "Where the link leads: an address with http or https.", |told| html! {
                input #target name="target" type="url" value=(form.target) required maxlength="8000" autocomplete="off"
                    autofocus[form.of.is_none() && (problem.is_none() || told.wrong.is_some())] aria-describedby=[&told.described] aria-invalid=[told.wrong];
            }))
            @match &form.of {
                Some((_, domain)) => input type="hidden" name="domain" value=(domain);,
                None => {
                    (faults.text("code", "Code", "What stands in the short address. Empty: a random one.", &form.code, 256))
                    @if places.len() > 1 || faults.of("domain").is_some() {
                        (faults.select("domain", "Domain", &form.domain, &places))
                    }
                },
            }
            (faults.text("title", "Title", "For people; at most 200 characters.", &form.title, 800))
            (faults.text("tags", "Tags", "With spaces between.", &form.tags, 1200))
            div.row {
                (faults.select("status", "Status", if form.disabled { "disabled" } else { "active" }, &[("active", "active"), ("disabled", "disabled: answers 404")]))
                (faults.select("redirect", "Redirect", &form.redirect, &[
                    ("307", "307 temporary"), ("302", "302 found"), ("301", "301 moved permanently"), ("308", "308 permanent"),
                ]))
            }
            label.tick { input type="checkbox" name="forward_query" checked[form.forward_query]; " Hand the visit's query string on" }
            div.row {
                (faults.text("not_before", "Not before", "A date (2030-01-31), an instant (RFC 3339), or a span from now (12h).", &form.not_before, 64))
                (faults.text("expires_at", "Expires", "The same; 410 from then on.", &form.expires_at, 64))
                (faults.field("max_clicks", "Most clicks", "410 after so many.", |told| html! {
                    input #max_clicks name="max_clicks" type="text" inputmode="numeric" value=(form.max_clicks) maxlength="20"
                        autocomplete="off" aria-describedby=[&told.described] aria-invalid=[told.wrong];
                }))
            }
            (faults.field("password", "Password", if form.protected { "Visitors are asked for one; empty: it stays as it is." } else { "Visitors are asked for it. Empty: for none." }, |told| html! {
                input #password name="password" type="password" maxlength="1024" autocomplete="new-password"
                    aria-describedby=[&told.described] aria-invalid=[told.wrong];
            }))
            @if form.protected {
                label.tick { input type="checkbox" name="unprotect" checked[form.unprotect]; " Ask for no password any more" }
            }
            div.buttons {
                button.primary { @if form.of.is_some() { "Save" } @else { "Make the link" } }
                a.button href=(leave) { "Leave it" }
            }
        }
    };
    html! { h1 { (heading) } (faults.summary()) (fields) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_what_the_api_takes() {
        let fields =
            b"target=https%3A%2F%2Fa.example%2F&tags=+a++b+&max_clicks=7&redirect=302&status=disabled";
        let values = Form::of_fields(&Fields::parse(fields)).values("").expect("values");
        let expected = json!({
            "target": "https://a.example/", "title": null, "tags": ["a", "b"], "status": "disabled", "redirect": 302,
            "forward_query": false, "not_before": null, "expires_at": null, "max_clicks": 7,
        });
        assert_eq!(Value::Object(values), expected);
        let wrong = Form::of_fields(&Fields::parse(b"max_clicks=many&redirect=302")).values("");
        assert_eq!(wrong.expect_err("no number").errors[0].pointer, "/max_clicks");
    }
}
