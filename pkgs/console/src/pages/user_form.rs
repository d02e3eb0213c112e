//! Forms for creating and editing a user. Field names are JSON pointers into the document, so that the API's errors are
//! shown next to their fields.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};
use service::problem::Problem;

use super::form::Faults;
use super::user::{ADDRESS, PROFILE, member, read};
use super::{Screen, csrf, failed, page as shown, see_other, users};
use crate::app::App;
use crate::csrf::random;
use crate::fields::Fields;
use crate::upstream::Error;
use crate::users::{Document, Id};
use crate::visitor::Visitor;

/// How many addresses the API lets a user have.
const ADDRESSES: usize = 16;

/// Members of an address that are numbers.
const DEGREES: [&str; 2] = ["latitude", "longitude"];

/// Members that only the service writes.
const READ_ONLY: [&str; 4] = ["id", "version", "created_at", "updated_at"];

/// The content of a form.
#[derive(Default)]
struct Form {
    /// The user being edited; none when creating one.
    of: Option<Id>,
    /// The tag of the user's state when the form was shown.
    seen: String,
    /// An idempotency key, so that a form that is sent twice creates only one user.
    once: String,
    /// The user, including what was typed.
    user: Document,
    /// For each address, its index among the user's stored addresses; none for a new one.
    were: Vec<Option<usize>>,
    /// Preferences as typed, which may be invalid JSON.
    preferences: String,
}

impl Form {
    fn of_user(id: Id, user: Document, seen: String) -> Self {
        let preferences = user.get("preferences").and_then(|all| serde_json::to_string_pretty(all).ok());
        let were =
            (0..user.get("addresses").and_then(Value::as_array).map_or(0, Vec::len)).map(Some).collect();
        Self {
            of: Some(id),
            seen,
            once: String::new(),
            were,
            preferences: preferences.unwrap_or_default(),
            user,
        }
    }

    /// Replaces the user's values with those that were typed. Members without a field stay.
    fn typed(fields: &Fields, before: Document) -> Self {
        let mut user = before;
        let text = |name: &str| fields.get(name).trim().to_owned();
        READ_ONLY.iter().for_each(|name| drop(user.remove(*name)));
        user.insert("email".into(), json!(text("email")));
        user.insert("name".into(), json!(text("name")));
        user.insert("status".into(), json!(fields.some("status").unwrap_or("active")));
        let tags: Vec<Value> = fields.get("tags").split_whitespace().map(Value::from).collect();
        put(&mut user, "tags", (!tags.is_empty()).then_some(Value::Array(tags)));
        let mut profile = object(user.remove("profile"));
        for (name, _) in PROFILE {
            // Browsers send line breaks as CRLF; the service stores LF.
            let value = text(&format!("profile/{name}")).replace("\r\n", "\n");
            put(&mut profile, name, (!value.is_empty()).then_some(Value::String(value)));
        }
        put(&mut user, "profile", (!profile.is_empty()).then_some(Value::Object(profile)));
        let before = match user.remove("addresses") {
            Some(Value::Array(before)) => before,
            _ => Vec::new(),
        };
        let typed = (0..ADDRESSES).filter_map(|index| {
            let was = fields.get(&format!("addresses/{index}/was")).parse().ok();
            let old = was.and_then(|was: usize| before.get(was).cloned());
            Some((was, address(fields, index, object(old))?))
        });
        let (were, addresses): (Vec<Option<usize>>, Vec<Value>) = typed.unzip();
        put(&mut user, "addresses", (!addresses.is_empty()).then_some(Value::Array(addresses)));
        Self {
            of: None,
            seen: text("seen"),
            once: text("once"),
            user,
            were,
            preferences: text("preferences"),
        }
    }

    /// The user in the API's format, or an error that the console finds before it calls the API.
    fn document(&self) -> Result<Document, Box<Problem>> {
        let mut user = self.user.clone();
        user.remove("preferences");
        if !self.preferences.is_empty() {
            let preferences = serde_json::from_str::<Value>(&self.preferences).map_err(|error| {
                let problem = Problem::unprocessable("the preferences are no JSON");
                Box::new(problem.with_error("/preferences", error.to_string()))
            })?;
            user.insert("preferences".into(), preferences);
        }
        Ok(user)
    }
}

/// An address from the form; none if all of its fields are empty.
fn address(fields: &Fields, index: usize, mut before: Document) -> Option<Value> {
    let mut said = false;
    for (name, _) in ADDRESS {
        let value = fields.get(&format!("addresses/{index}/{name}")).trim();
        said |= !value.is_empty();
        let number = || DEGREES.contains(&name).then(|| value.parse::<serde_json::Number>().ok()).flatten();
        let value = match value {
            "" if ["label", "street", "city", "country"].contains(&name) => Some(json!("")),
            "" => None,
            // If it isn't a number, send it unchanged, so that the API's error is shown next to the field.
            value => Some(number().map_or_else(|| json!(value), Value::Number)),
        };
        put(&mut before, name, value);
    }
    said.then_some(Value::Object(before))
}

fn object(value: Option<Value>) -> Document {
    match value {
        Some(Value::Object(members)) => members,
        _ => Document::new(),
    }
}

fn put(of: &mut Document, name: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(of.insert(name.to_owned(), value)),
        None => drop(of.remove(name)),
    }
}

pub(crate) async fn new(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    if let Err(error) = users(&app, &visitor) {
        return failed((&app, &visitor), (Screen::Users, "New user"), &error);
    }
    answer(&app, &visitor, &Form { once: random().unwrap_or_default(), ..Form::default() }, None)
}

/// Creates a user.
pub(crate) async fn create(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let form = Form::typed(&fields, Document::new());
    let made = async {
        let user = form.document().map_err(Error::Refused)?;
        users(&app, &visitor)?.create(&user, &form.once).await
    };
    match made.await {
        Ok(user) => see_other(&format!("/user/{}?saved=yes", member(&user, "id"))),
        Err(Error::Refused(problem)) if at_fault(&problem) => {
            // An idempotency key stays tied to the request that it was used with, so the form gets a new one.
            answer(&app, &visitor, &Form { once: random().unwrap_or_default(), ..form }, Some(&problem))
        }
        Err(error) => failed((&app, &visitor), (Screen::Users, "New user"), &error),
    }
}

pub(crate) async fn edit(
    State(app): State<Arc<App>>,
    Path(path): Path<String>,
    visitor: Visitor,
) -> Response {
    match read(&app, &visitor, &path).await {
        Ok((id, user, seen)) => answer(&app, &visitor, &Form::of_user(id, user, seen), None),
        Err(error) => failed((&app, &visitor), (Screen::Users, "Edit user"), &error),
    }
}

/// Edits a user, unless somebody else has edited it in the meantime.
pub(crate) async fn save(
    State(app): State<Arc<App>>,
    Path(path): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let asked = (Screen::Users, "Edit user");
    let (id, now, now_seen) = match read(&app, &visitor, &path).await {
        Ok(read) => read,
        Err(error) => return failed((&app, &visitor), asked, &error),
    };
    let mut form = Form { of: Some(id.clone()), ..Form::typed(&fields, now) };
    let saved = async {
        let user = form.document().map_err(Error::Refused)?;
        users(&app, &visitor)?.replace(&id, &user, &form.seen).await
    };
    match saved.await {
        Ok(_) => see_other(&format!("/user/{}?saved=yes", id.as_str())),
        Err(Error::Refused(problem)) if problem.status == 412 => {
            let why = "somebody else has changed this user since this form was loaded; what you typed is still here, and saving \
                       once more puts it in the place of theirs";
            form.seen = now_seen;
            answer(&app, &visitor, &form, Some(&Problem::conflict(why)))
        }
        Err(Error::Refused(problem)) if at_fault(&problem) => answer(&app, &visitor, &form, Some(&problem)),
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

/// Whether to show the form again with the error.
fn at_fault(problem: &Problem) -> bool {
    [400, 409, 413, 422].contains(&problem.status)
}

fn answer(app: &App, visitor: &Visitor, form: &Form, problem: Option<&Problem>) -> Response {
    let status = problem.map_or(StatusCode::OK, |problem| {
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY)
    });
    let title = if form.of.is_some() { "Edit user" } else { "New user" };
    shown(status, (app, visitor), (Screen::Users, title), show(visitor, form, problem))
}

fn show(visitor: &Visitor, form: &Form, problem: Option<&Problem>) -> Markup {
    let faults = Faults::new(problem);
    let (heading, action, leave) = match &form.of {
        Some(id) => {
            let place = format!("/user/{}", id.as_str());
            (format!("Edit {}", member(&form.user, "name")), format!("{place}/edit"), place)
        }
        None => ("New user".to_owned(), "/users/new".to_owned(), "/users".to_owned()),
    };
    let tags = form.user.get("tags").and_then(Value::as_array).into_iter().flatten();
    let tags: Vec<&str> = tags.filter_map(Value::as_str).collect();
    let content = html! {
        form.sheet method="post" action=(action) {
            (csrf(visitor))
            input type="hidden" name="seen" value=(form.seen);
            input type="hidden" name="once" value=(form.once);
            (faults.field("email", "Email", "", |told| html! {
                input #email name="email" type="text" inputmode="email" value=(member(&form.user, "email")) required maxlength="254"
                    autocomplete="off" spellcheck="false" autofocus[form.of.is_none() && problem.is_none() || told.wrong.is_some()]
                    aria-describedby=[&told.described] aria-invalid=[told.wrong];
            }))
            (faults.text("name", "Name", "", &member(&form.user, "name"), 800))
            div.row {
                (faults.select("status", "Status", &member(&form.user, "status"), &[
                    ("active", "active"), ("invited", "invited: not yet"), ("suspended", "suspended: not any more"),
                ]))
                (faults.text("tags", "Tags", "With spaces between.", &tags.join(" "), 1100))
            }
            (profile(&faults, &form.user))
            (addresses(&faults, form))
            (faults.lines("preferences", "Preferences", "A JSON object, or nothing.", &form.preferences, 5))
            div.buttons {
                button.primary { @if form.of.is_some() { "Save" } @else { "Make the user" } }
                a.button href=(leave) { "Leave it" }
            }
        }
    };
    html! { h1 { bdi { (heading) } } (faults.summary()) (content) }
}

fn profile(faults: &Faults<'_>, user: &Document) -> Markup {
    let profile = object(user.get("profile").cloned());
    let hints = [
        ("birth_date", "Such as 1990-12-31."),
        ("phone", "Such as +4315550100."),
        ("locale", "Such as de-AT."),
        ("time_zone", "Such as Europe/Vienna."),
    ];
    let (bio, lines) = PROFILE.split_last().expect("a profile has members");
    html! {
        fieldset {
            legend { "Profile" }
            div.row { @for (name, words) in lines {
                @let hint = hints.iter().find(|(of, _)| of == name).map_or("", |(_, hint)| hint);
                (faults.text(&format!("profile/{name}"), words, hint, &member(&profile, name), 400))
            } }
            (faults.lines(&format!("profile/{}", bio.0), bio.1, "", &member(&profile, bio.0), 3))
        }
    }
}

/// The user's addresses, and an empty one if another is allowed.
fn addresses(faults: &Faults<'_>, form: &Form) -> Markup {
    let all = form.user.get("addresses").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let shown = (all.len() + 1).min(ADDRESSES);
    html! {
        @for index in 0..shown {
            @let address = object(all.get(index).cloned());
            details open[faults.of(&format!("addresses/{index}")).is_some()] {
                summary {
                    @if index < all.len() { "Address: " bdi { (member(&address, "label")) } } @else { "One more address" }
                }
                @if let Some(Some(was)) = form.were.get(index) {
                    input type="hidden" name={ "addresses/" (index) "/was" } value=(was);
                }
                p.hint { "Without anything in its fields it goes away." }
                div.row { @for (name, words) in ADDRESS {
                    @let hint = if name == "country" { "Two letters, such as AT." } else { "" };
                    (faults.text(&format!("addresses/{index}/{name}"), words, hint, &member(&address, name), 800))
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(query: &str, before: Value) -> Form {
        Form::typed(&Fields::parse(query.as_bytes()), object(Some(before)))
    }

    #[test]
    fn a_form_says_what_the_api_takes() {
        let form = typed(
            "email=a%40b.example&name=+Ada+&status=invited&tags=+x++y+&profile/bio=one%0D%0Atwo&addresses/1/label=home&\
             addresses/1/latitude=48.2&addresses/2/longitude=east&preferences=%7B%22a%22%3A+null%7D",
            json!({}),
        );
        let expected = json!({
            "email": "a@b.example", "name": "Ada", "status": "invited", "tags": ["x", "y"], "profile": {"bio": "one\ntwo"},
            "addresses": [
                {"label": "home", "street": "", "city": "", "country": "", "latitude": 48.2},
                {"label": "", "street": "", "city": "", "country": "", "longitude": "east"},
            ],
            "preferences": {"a": null},
        });
        assert_eq!(Value::Object(form.document().expect("a document")), expected);
    }

    #[test]
    fn what_no_field_shows_stays_and_what_is_emptied_goes() {
        let before = json!({
            "id": "1", "version": 3, "created_at": "t", "updated_at": "t", "email": "a@b.example", "name": "Ada",
            "status": "active", "more": [1], "tags": ["x"], "preferences": {"a": 1},
            "profile": {"bio": "b", "shoe": 38}, "addresses": [{"label": "home", "door": 7}, {"label": "gone"}],
        });
        let form = typed(
            "email=a%40b.example&name=Ada&addresses/0/was=0&addresses/0/label=house&addresses/1/was=1",
            before,
        );
        let expected = json!({
            "email": "a@b.example", "name": "Ada", "status": "active", "more": [1], "profile": {"shoe": 38},
            "addresses": [{"label": "house", "street": "", "city": "", "country": "", "door": 7}],
        });
        assert_eq!(Value::Object(form.document().expect("a document")), expected);
    }

    #[test]
    fn preferences_that_are_no_json_are_told_beside_their_field() {
        let wrong = typed("preferences=%7Ba", json!({})).document().expect_err("no JSON");
        assert_eq!(wrong.errors[0].pointer, "/preferences");
    }
}
