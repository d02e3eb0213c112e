//! Sessions: the user's own ones, and all of them for users who may write everything.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::operation::may_see_all;
use super::{csrf, operation, see_other, text};
use crate::app::App;
use crate::fields::Fields;
use crate::session::{Listed, Whose};
use crate::visitor::Visitor;

/// Which sessions a visitor may see and end. If links doesn't answer, only their own.
async fn whose(app: &App, visitor: &Visitor) -> Whose {
    let all = may_see_all(app, visitor).await.unwrap_or(false);
    if all { Whose::Everybodys } else { Whose::Own }
}

/// The sessions that a visitor may end.
pub(super) async fn section(app: &App, visitor: &Visitor) -> Markup {
    let whose = whose(app, visitor).await;
    let grant = visitor.grant.as_ref();
    let listed = grant.map(|grant| app.sessions.of(whose, grant, &visitor.cookie, Instant::now()));
    let listed: Vec<Listed> = listed.unwrap_or_default();
    let (own, others): (Vec<_>, Vec<_>) = listed.iter().partition(|one| one.shares);
    html! {
        section aria-labelledby="sessions" {
            h2 #sessions { "Sessions of your keys" }
            (table("Sessions of your keys", visitor, &own))
        }
        @if whose == Whose::Everybodys {
            section aria-labelledby="others" {
                h2 #others { "Sessions of others" }
                @if others.is_empty() { p.empty { "Nobody else is signed in." } }
                @else { (table("Sessions of others", visitor, &others)) }
            }
        }
    }
}

fn table(label: &str, visitor: &Visitor, listed: &[&Listed]) -> Markup {
    html! {
        table.cards aria-label=(label) {
            thead { tr {
                th scope="col" { "From" } th scope="col" { "Who" } th scope="col" { "Signed in" } th scope="col" { "Used" }
                th scope="col" { span.unseen { "End" } }
            } }
            tbody { @for one in listed { tr {
                th scope="row" { @match one.from { Some(from) => (from), None => "a Unix socket" } @if one.own { " " span.badge.good { "this one" } } }
                td data-label="Who" { bdi { (one.who) } }
                td data-label="Signed in" { (text::span(one.begun.as_secs())) " ago" }
                td data-label="Used" { (text::span(one.used.as_secs())) " ago" }
                td { form method="post" action="/access/end" {
                    (csrf(visitor))
                    input type="hidden" name="session" value=(one.name);
                    button.quiet { @if one.own { "Sign out" } @else { "End it" } }
                } }
            } } }
        }
    }
}

/// Ends a session that has a key in common with the visitor's or, for users who may write everything, any session.
pub(crate) async fn end(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Some(grant) = &visitor.grant {
        let ended = app.sessions.end_named(whose(&app, &visitor).await, grant, fields.get("session"));
        if let Some(name) = ended {
            operation::note(&app, &visitor, "session.end", &name, true).await;
        }
    }
    see_other("/access")
}
