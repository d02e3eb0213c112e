//! Importing and exporting links.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::live::{self, Told};
use super::{Screen, attachment, csrf, failed, links, missing, page as shown, see_other, text};
use crate::app::App;
use crate::fields::Fields;
use crate::imports::rows::Rows;
use crate::imports::{Import, Progress};
use crate::links::Tally;
use crate::sent_file::SentFile;
use crate::visitor::Visitor;

/// The longest typed rows that a refused form repeats, in bytes.
const REPEATED: usize = 64 * 1024;

const TITLE: (Screen, &str) = (Screen::Links, "Import and export");

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    shown(StatusCode::OK, (&app, &visitor), TITLE, show(&visitor, &Fields::default(), None))
}

/// Begins an import of rows.
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    fields: Fields,
    file: Option<SentFile>,
) -> Response {
    let file = file.filter(|file| !file.name.is_empty());
    let wrong =
        |status, why: &str| shown(status, (&app, &visitor), TITLE, show(&visitor, &fields, Some(why)));
    // The format of a file follows from its name; the form states the format of typed rows.
    let is_json = match &file {
        Some(file) => {
            [".json", ".ndjson", ".jsonl"].iter().any(|end| file.name.to_lowercase().ends_with(end))
        }
        None => fields.get("format") == "json",
    };
    let bytes = file.map_or_else(|| fields.get("rows").trim().as_bytes().to_vec().into(), |file| file.bytes);
    if bytes.is_empty() {
        return wrong(StatusCode::UNPROCESSABLE_ENTITY, "Choose a file, or write some rows.");
    }
    if let Err(error) = links(&app, &visitor) {
        return failed((&app, &visitor), TITLE, &error);
    }
    // The rows of each import are in memory from here on.
    let Some(place) = app.imports.place() else {
        let why = "Two imports are under way already; wait for one of them.";
        return wrong(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    // Parsing megabytes takes a while. On a blocking thread, it doesn't delay other visitors. It has the place, since
    // it goes on even if the visitor doesn't wait for it.
    let rows = move || {
        let rows = if is_json { Rows::of_json(&bytes) } else { Rows::of_csv(&bytes) };
        rows.map(|rows| (rows, place))
    };
    let (rows, place) = match tokio::task::spawn_blocking(rows).await {
        Ok(Ok(read)) => read,
        Err(_) => {
            return wrong(
                StatusCode::INTERNAL_SERVER_ERROR,
                "Nothing was imported: reading the rows failed.",
            );
        }
        Ok(Err(why)) => {
            return wrong(StatusCode::UNPROCESSABLE_ENTITY, &format!("Nothing was imported: {why}"));
        }
    };
    let Some(worker) = app.imports.begin(&visitor.cookie, rows.count(), place) else {
        return wrong(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Nothing was imported: the system has no randomness.",
        );
    };
    let location = format!("/links/import/{}", worker.import.id);
    let on_conflict = fields.get("on_conflict").to_owned();
    let going_on = (Arc::clone(&app), visitor.clone(), worker);
    tokio::spawn(async move {
        let (app, visitor, worker) = going_on;
        let import = &worker.import;
        let ended = tokio::select! {
            ended = run(&app, &visitor, import, rows, &on_conflict) => ended,
            () = app.shutdown.wait() => Err("the console ended meanwhile".to_owned()),
        };
        import.end(ended);
    });
    see_other(&location)
}

/// Sends rows to links, piece by piece.
async fn run(
    app: &App,
    visitor: &Visitor,
    import: &Import,
    rows: Rows,
    on_conflict: &str,
) -> Result<(), String> {
    let fields = [("on_conflict", on_conflict)];
    for (piece, count) in rows.pieces {
        let api = links(app, visitor).map_err(|error| error.to_string())?;
        let tally = api.import((rows.media_type, piece), &fields).await;
        import.add(count, tally.map_err(|error| error.to_string())?);
    }
    Ok(())
}

/// How far an import has got.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>, visitor: Visitor) -> Response {
    let Some(import) = app.imports.find(&visitor.cookie, &id) else {
        return missing(State(app), visitor).await;
    };
    let now = import.progress();
    let content = html! {
        h1 { "Import" }
        @if now.ended.is_some() { (progress(&now)) }
        @else {
            div hx-ext="sse" sse-connect={ "/live/import/" (id) } sse-close=(live::OVER) {
                div sse-swap="import" { (progress(&now)) }
            }
            noscript { p { a.button href={ "/links/import/" (id) } { "See how far it is now" } } }
        }
        p.buttons { a.button href="/links" { "To the list" } a.button href="/links/import" { "Import more" } }
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Links, "Import"), content)
}

pub(crate) async fn live(State(app): State<Arc<App>>, Path(id): Path<String>, visitor: Visitor) -> Response {
    let owner = visitor.cookie.clone();
    live::events(&app, visitor, "import", move |app| {
        let import = app.imports.find(&owner, &id);
        async move {
            let now = import.map(|import| import.progress());
            let goes_on = now.as_ref().is_some_and(|now| now.ended.is_none());
            Told { figures: now.map_or_else(|| html! {}, |now| progress(&now)), goes_on }
        }
    })
}

fn progress(now: &Progress) -> Markup {
    let Progress { total, read, tally, ended } = now;
    html! {
        p role="status" {
            (text::grouped(*read)) " of " (text::number(*total as usize, "row", "rows"))
            @if ended.is_none() { " so far" }
        }
        @if ended.is_none() { progress max=(total) value=(read) aria-label="Rows" {} }
        @if let Some(Err(why)) = ended { p.alert role="alert" { "It broke off: " (why) } }
        (report(tally))
    }
}

/// All links as a file, which is streamed.
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

fn show(visitor: &Visitor, fields: &Fields, wrong: Option<&str>) -> Markup {
    let option = |name: &str, value: &str, words: &str| {
        html! { option value=(value) selected[fields.get(name) == value] { (words) } }
    };
    let rows = fields.get("rows");
    let is_long = rows.len() > REPEATED;
    html! {
        h1 { "Import and export" }
        form.sheet method="post" action="/links/import" enctype="multipart/form-data" {
            h2 { "Import" }
            (csrf(visitor))
            @if let Some(wrong) = wrong {
                p.alert role="alert" {
                    (wrong)
                    @if is_long { " So many rows are not repeated here: paste them once more, or choose their file." }
                }
            }
            div.field {
                label for="file" { "From a file" }
                input #file type="file" name="file" accept=".csv,.json,.ndjson,.jsonl,text/csv,application/json";
            }
            div.field {
                label for="rows" { "Or rows" }
                textarea #rows name="rows" rows="10" spellcheck="false" aria-describedby="rows-hint" { @if !is_long { (rows) } }
                p.hint #rows-hint {
                    "CSV begins with a line of names, of which only " code { "target" } " must be there: "
                    code { "code,target,title,tags" } ". At most 8 MiB; longer files by "
                    code { "linerate-links import FILE" } "."
                }
            }
            div.row {
                div.field {
                    label for="format" { "Format of rows" }
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
