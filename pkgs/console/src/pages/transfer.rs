//! Links out of other places, and into them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::{Screen, attachment, csrf, failed, links, page as shown, text};
use crate::app::App;
use crate::fields::Fields;
use crate::links::Tally;
use crate::upstream::Error;
use crate::visitor::Visitor;

const TITLE: (Screen, &str) = (Screen::Links, "Import and export");

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    shown(StatusCode::OK, (&app, &visitor), TITLE, show(&visitor, &Fields::default(), None, None))
}

/// Makes links of rows.
pub(crate) async fn import(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let rows = fields.get("rows").trim();
    let media_type = if fields.get("format") == "json" { "application/json" } else { "text/csv" };
    // JSON that is an array or one object a line is told by its type.
    let media_type = if media_type == "application/json" && !rows.starts_with('[') {
        "application/x-ndjson"
    } else {
        media_type
    };
    let on_conflict = [("on_conflict", fields.get("on_conflict"))];
    let imported =
        async { links(&app, &visitor)?.import((media_type, rows.as_bytes().to_vec()), &on_conflict).await };
    let (status, content) = match imported.await {
        Ok(tally) => (StatusCode::OK, show(&visitor, &Fields::default(), Some(&tally), None)),
        Err(Error::Refused(problem)) if [400, 415, 422].contains(&problem.status) => {
            (StatusCode::UNPROCESSABLE_ENTITY, show(&visitor, &fields, None, Some(&problem.detail)))
        }
        Err(error) => return failed((&app, &visitor), TITLE, &error),
    };
    shown(status, (&app, &visitor), TITLE, content)
}

/// All links as a file, as long as it is.
pub(crate) async fn export(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    let (format, media_type) = match fields.get("format") {
        "json" => ("json", "application/json"),
        _ => ("csv", "text/csv; charset=utf-8"),
    };
    let begun = async { links(&app, &visitor)?.export(format, fields.get("domain")).await };
    match begun.await {
        Ok(response) => attachment(media_type, &format!("links.{format}"), Body::new(response.into_body())),
        Err(error) => failed((&app, &visitor), TITLE, &error),
    }
}

fn show(visitor: &Visitor, fields: &Fields, tally: Option<&Tally>, wrong: Option<&str>) -> Markup {
    let option = |name: &str, value: &str, words: &str| {
        html! { option value=(value) selected[fields.get(name) == value] { (words) } }
    };
    html! {
        h1 { "Import and export" }
        @if let Some(tally) = tally { (report(tally)) }
        form.sheet method="post" action="/links/import" {
            h2 { "Import" }
            (csrf(visitor))
            @if let Some(wrong) = wrong { p.alert role="alert" { (wrong) } }
            div.field hidden {
                label for="file" { "From a file" }
                input #file type="file" accept=".csv,.json,.ndjson,text/csv,application/json" data-into="rows";
            }
            div.field {
                label for="rows" { "Rows" }
                textarea #rows name="rows" rows="10" required spellcheck="false" aria-describedby="rows-hint" { (fields.get("rows")) }
                p.hint #rows-hint {
                    "CSV begins with a line of names, of which only " code { "target" } " must be there: "
                    code { "code,target,title,tags" } ". Some thousand rows; longer files by "
                    code { "linerate-links import FILE" } "."
                }
            }
            div.row {
                div.field {
                    label for="format" { "Format" }
                    select #format name="format" { (option("format", "csv", "CSV")) (option("format", "json", "JSON")) }
                }
                div.field {
                    label for="on_conflict" { "A code that is taken" }
                    select #on_conflict name="on_conflict" {
                        (option("on_conflict", "fail", "is told as failed")) (option("on_conflict", "skip", "is left out"))
                        (option("on_conflict", "replace", "is replaced; its clicks stay"))
                    }
                }
            }
            div.buttons { button.primary { "Import" } a.button href="/links" { "To the list" } }
        }
        h2 { "Export" }
        p { "All links that your key may read, without passwords: links that ask for one are exported as disabled." }
        p.buttons {
            a.button href="/links/export?format=csv" download { "As CSV" }
            a.button href="/links/export?format=json" download { "As JSON" }
        }
    }
}

fn report(tally: &Tally) -> Markup {
    let figures = [
        ("Made", tally.created),
        ("Replaced", tally.replaced),
        ("Left out", tally.skipped),
        ("Failed", tally.failed),
    ];
    html! {
        div class=(if tally.failed == 0 { "done" } else { "alert" }) role="status" {
            dl.machine { @for (name, count) in figures { div { dt { (name) } dd { (text::grouped(count)) } } } }
            @if !tally.errors.is_empty() {
                ul { @for (row, why) in &tally.errors { li { "Row " (text::grouped(*row)) ": " (why) } } }
            }
        }
    }
}
