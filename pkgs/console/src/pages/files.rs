//! Files: what is below the root, which response a path gets by which rules, and actions on files.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::{Screen, absent, csrf, failed, operation, page as shown, see_other, text};
use crate::app::App;
use crate::assets;
use crate::fields::{Fields, query};
use crate::files::{self, Change, Directory, Entry, Kept, Room, Told, UrlPath};
use crate::sent_file;
use crate::upstream::{Error, Upstream};
use crate::visitor::Visitor;

pub(super) const SCREEN: (Screen, &str) = (Screen::Files, "Files");

/// The address of a path's page.
pub(super) fn place(path: &str, what: &str) -> String {
    format!("/files{what}?{}", query(&[("path", path)]))
}

/// The requested path; the root by default.
fn asked(fields: &Fields) -> Option<UrlPath> {
    UrlPath::new(fields.some("path").unwrap_or("/"))
}

/// The service that writes files, if it is configured.
pub(super) fn writer(app: &App) -> Result<&Upstream, Error> {
    app.writer.as_ref().ok_or_else(|| absent("--files-writer"))
}

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    screen(&app, &visitor, &fields, None).await
}

/// The page of a path, with an error message if the request failed.
pub(super) async fn screen(
    app: &Arc<App>,
    visitor: &Visitor,
    fields: &Fields,
    wrong: Option<(StatusCode, &str)>,
) -> Response {
    let Some(path) = asked(fields) else { return missing(app, visitor) };
    let Some(files) = &app.files else {
        return failed((app, visitor), SCREEN, &absent("linerate-files (--files none)"));
    };
    let content = if path.is_directory() {
        let room = match &app.writer {
            Some(writer) => Some(files::room(writer).await),
            None => None,
        };
        match files::browse(files, &path, fields.get("after")).await {
            Ok(directory) => listing(visitor, &path, &directory, room.as_ref()),
            Err(error) => return not_told(app, visitor, &error),
        }
    } else {
        match files::answer(files, &path).await {
            Ok(told) => one(&path, &told, app.writer.is_some()),
            Err(error) => return not_told(app, visitor, &error),
        }
    };
    let content = html! {
        (trail(&path))
        @if let Some((_, wrong)) = wrong { p.alert role="alert" { (wrong) } }
        @if fields.has("done") { p.done role="status" { "Done." } }
        (content)
    };
    shown(wrong.map_or(StatusCode::OK, |(status, _)| status), (app, visitor), SCREEN, content)
}

fn missing(app: &App, visitor: &Visitor) -> Response {
    let content = html! { h1 { "Not found" } p.alert role="alert" { "No path is written like that." } };
    shown(StatusCode::NOT_FOUND, (app, visitor), SCREEN, content)
}

/// The page if linerate-files gave no answer. An older version, or one without the necessary flag, doesn't have these
/// endpoints.
fn not_told(app: &App, visitor: &Visitor, error: &Error) -> Response {
    match error {
        Error::Refused(problem) if problem.status == 404 && problem.detail.starts_with("files answers") => {
            failed((app, visitor), SCREEN, &absent_browse())
        }
        error => failed((app, visitor), SCREEN, error),
    }
}

fn absent_browse() -> Error {
    let why = "linerate-files was started without --admin-browse, so it tells nothing of its root";
    Error::Refused(Box::new(service::problem::Problem::conflict(why)))
}

fn trail(path: &UrlPath) -> Markup {
    html! {
        h1 { "Files" }
        nav.trail aria-label="Directories" {
            a href="/files" { "root" }
            @for (name, at) in path.trail() { " / " a href=(place(&at, "")) { bdi { (name) } } }
        }
    }
}

/// The entries of a directory, and the actions it allows.
fn listing(
    visitor: &Visitor,
    path: &UrlPath,
    directory: &Directory,
    room: Option<&Result<Room, Error>>,
) -> Markup {
    let writes = matches!(room, Some(Ok(_)));
    html! {
        table.cards {
            caption { "What linerate-files serves here" }
            thead { tr {
                th scope="col" { "Name" } th.number scope="col" { "Size" } th scope="col" { "Type" } th scope="col" { "Changed" }
                th scope="col" { "Beside it" } th scope="col" { "In memory" } th scope="col" { "Rules" }
                @if writes { th scope="col" { "Do" } }
            } }
            tbody {
                @for entry in &directory.entries { (row(entry, writes)) }
                @if directory.entries.is_empty() { tr { td colspan="8" { "Nothing is here." } } }
            }
        }
        @if let Some(next) = &directory.next {
            p { a.button href=(format!("/files?{}", query(&[("path", path.as_str()), ("after", next)]))) { "Further ones" } }
        }
        (rules("Rules for this directory", &directory.rules))
        @match room {
            None => p.hint { "This console was started without " code { "--files-writer" } ", so files are only shown." },
            Some(Err(error)) => p.alert role="alert" { (error) },
            Some(Ok(room)) => (actions(visitor, path, room)),
        }
    }
}

fn row(entry: &Entry, writes: bool) -> Markup {
    let name = if entry.kind == "directory" { format!("{}/", entry.name) } else { entry.name.clone() };
    html! {
        tr {
            th.long scope="row" {
                @if entry.kind == "other" { bdi { (name) } } @else { a href=(place(&entry.path, "")) { bdi { (name) } } }
                @if entry.link { " " span.badge { "link" } }
                @if let Some(why) = &entry.why { br; span.hint { (why) } }
            }
            td.number data-label="Size" { (text::or_none(entry.size, |size| text::bytes(size as f64))) }
            td data-label="Type" { @match &entry.media_type { Some(kind) => (kind), None => (entry.kind) } }
            td data-label="Changed" { @match entry.modified.and_then(|at| Timestamp::from_second(at).ok()) {
                Some(at) => (text::instant(&at.to_string())), None => "–",
            } }
            td data-label="Beside it" { (list(&entry.codings)) }
            td data-label="In memory" { (kept(entry.kept)) }
            td data-label="Rules" { (list(&entry.rules.iter().map(ToString::to_string).collect::<Vec<_>>())) }
            @if writes {
                td data-label="Do" {
                    a href=(place(&entry.path, "/rename")) aria-label={ "Rename " (name) } { "Rename" } " "
                    a href=(place(&entry.path, "/delete")) aria-label={ "Delete " (name) } { "Delete" }
                }
            }
        }
    }
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "–".into() } else { words.join(", ") }
}

fn kept(kept: Kept) -> String {
    let all = [(kept.pipe, "hot copy"), (kept.tls, "hot copy for TLS"), (kept.page_cache, "page cache")];
    list(&all.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_owned()).collect::<Vec<_>>())
}

fn rules(title: &str, rules: &[Map<String, Value>]) -> Markup {
    html! {
        @if !rules.is_empty() {
            h2 { (title) }
            table.cards {
                thead { tr { th scope="col" { "Rule" } th scope="col" { "For" } th scope="col" { "It says" } } }
                tbody { @for rule in rules { tr {
                    th scope="row" { (rule.get("rule").and_then(Value::as_u64).unwrap_or(0)) }
                    td data-label="For" { code { (["match", "path"].iter().find_map(|name| rule.get(*name)?.as_str()).unwrap_or("")) } }
                    td.long data-label="It says" { @for (name, value) in rule.iter().filter(|(name, _)| !["rule", "path", "match"].contains(&name.as_str())) {
                        code { (name) " = " (value) } br;
                    } }
                } } }
            }
            p.hint { "All of them apply, later ones over earlier ones." }
        }
    }
}

/// The response that a path gets.
fn one(path: &UrlPath, told: &Told, writes: bool) -> Markup {
    html! {
        h2 { "What a stranger's browser is answered" }
        p {
            strong { (told.status) }
            @if let Some(bytes) = told.bytes { ", " (text::bytes(bytes as f64)) }
            @if let Some(sent) = &told.sent { ", of " a href=(place(sent, "")) { bdi { (UrlPath::new(sent).map_or_else(String::new, |sent| sent.shown())) } } }
            @if told.compressed { ", and compressed from the second time on" }
            ". In memory: " (kept(told.kept)) "."
        }
        table.cards {
            thead { tr { th scope="col" { "Field" } th scope="col" { "Value" } } }
            tbody { @for (name, value) in &told.fields { tr { th scope="row" { (name) } td.long data-label="Value" { (value) } } } }
        }
        (rules("Rules for this path", &told.rules))
        (rules("Rules for the file that is sent", &told.rules_of_sent))
        @if writes {
            p.buttons {
                a.button href=(place(path.as_str(), "/rename")) { "Rename" }
                a.button href=(place(path.as_str(), "/delete")) { "Delete" }
            }
        }
    }
}

/// The actions that are possible in a directory.
fn actions(visitor: &Visitor, path: &UrlPath, room: &Room) -> Markup {
    html! {
        script src=(assets::path("upload.js")) defer {}
        form.sheet method="post" action="/files/upload" enctype="multipart/form-data" data-uploads="/files/uploads" data-path=(path.as_str()) {
            h2 { "Upload" }
            (csrf(visitor))
            input type="hidden" name="path" value=(path.as_str());
            div.field {
                label for="file" { "File" }
                input #file type="file" name="file" required aria-describedby="file-hint";
                p.hint #file-hint {
                    "Up to " (text::bytes(room.most.file_bytes as f64)) ", and what breaks off goes on where it was; without a script up to "
                    (text::bytes(sent_file::MOST_BYTES as f64)) "."
                }
            }
            label.check { input type="checkbox" name="replace" value="yes"; " Replace what is there" }
            progress hidden max="1" value="0" aria-label="Sent" {}
            p.said role="status" {}
            div.buttons { button.primary { "Upload" } }
        }
        form.sheet method="post" action="/files/directory" {
            h2 { "New directory" }
            (csrf(visitor))
            input type="hidden" name="path" value=(path.as_str());
            div.field { label for="name" { "Name" } input #name type="text" name="name" required maxlength="255" autocomplete="off" spellcheck="false"; }
            div.buttons { button { "Make it" } }
        }
        h2 { "Room" }
        p {
            (text::bytes(room.used.bytes as f64)) " of " (text::bytes(room.most.bytes as f64)) ", "
            (text::grouped(room.used.files)) " of " (text::grouped(room.most.files)) " files and directories."
        }
        @if !room.uploads.is_empty() {
            table.cards {
                caption { "Uploads under way" }
                thead { tr { th scope="col" { "File" } th.number scope="col" { "Came" } th.number scope="col" { "Of" } th scope="col" { "By" } th scope="col" { "Do" } } }
                tbody { @for one in &room.uploads { tr {
                    th.long scope="row" { bdi { (UrlPath::new(&one.path).map_or_else(String::new, |path| path.shown())) } }
                    td.number data-label="Came" { (text::bytes(one.offset as f64)) }
                    td.number data-label="Of" { (text::bytes(one.length as f64)) }
                    td.long data-label="By" { (one.by) }
                    td data-label="Do" { form.inline method="post" action="/files/end" {
                        (csrf(visitor))
                        input type="hidden" name="path" value=(path.as_str());
                        input type="hidden" name="id" value=(one.id);
                        button { "Give up" }
                    } }
                } } }
            }
        }
    }
}

/// Asks for the new name before renaming.
pub(crate) async fn ask_rename(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    renaming(&app, &visitor, &fields, None)
}

fn renaming(app: &App, visitor: &Visitor, fields: &Fields, wrong: Option<(StatusCode, &str)>) -> Response {
    let Some(path) = asked(fields) else { return missing(app, visitor) };
    let to = fields.some("to").map_or_else(|| path.shown().trim_end_matches('/').to_owned(), str::to_owned);
    let content = html! {
        (trail(&path))
        form.sheet method="post" action="/files/rename" {
            h2 { "Rename " bdi { (path.shown()) } }
            (csrf(visitor))
            @if let Some((_, wrong)) = wrong { p.alert role="alert" { (wrong) } }
            input type="hidden" name="path" value=(path.as_str());
            div.field { label for="to" { "New path" } input #to type="text" name="to" value=(to) required maxlength="1024" autocomplete="off" spellcheck="false"; }
            label.check { input type="checkbox" name="replace" value="yes"; " Replace what is there" }
            div.buttons { button.primary { "Rename" } a.button href=(place(path.directory().as_str(), "")) { "Leave it" } }
        }
    };
    shown(
        wrong.map_or(StatusCode::OK, |(status, _)| status),
        (app, visitor),
        (Screen::Files, "Rename"),
        content,
    )
}

pub(crate) async fn rename(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let Some(from) = asked(&fields) else { return missing(&app, &visitor) };
    let Some(to) = UrlPath::of_text(fields.get("to").trim()) else {
        let wrong = (StatusCode::UNPROCESSABLE_ENTITY, "A path begins with a slash.");
        return renaming(&app, &visitor, &fields, Some(wrong));
    };
    let back = to.directory();
    let change = Change::Rename { from, to, replace: fields.has("replace") };
    match done(&app, &visitor, &change).await {
        Ok(()) => see_other(&format!("{}&done=1", place(back.as_str(), ""))),
        Err(Error::Refused(problem)) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::CONFLICT);
            renaming(&app, &visitor, &fields, Some((status, &problem.detail)))
        }
        Err(error) => failed((&app, &visitor), SCREEN, &error),
    }
}

pub(crate) async fn ask_delete(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let Some(path) = asked(&fields) else { return missing(&app, &visitor) };
    let content = html! {
        (trail(&path))
        h2 { "Delete " bdi { (path.shown()) } "?" }
        p { "Nothing brings it back. Codings that lie beside a file stay; a directory is deleted only where it is empty." }
        form method="post" action="/files/delete" {
            (csrf(&visitor))
            input type="hidden" name="path" value=(path.as_str());
            button.danger { "Delete" } " "
            a.button href=(place(path.directory().as_str(), "")) { "Keep it" }
        }
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Files, "Delete"), content)
}

pub(crate) async fn delete(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let Some(path) = asked(&fields) else { return missing(&app, &visitor) };
    let back = path.directory();
    after(&app, &visitor, &back, done(&app, &visitor, &Change::Delete(path)).await).await
}

pub(crate) async fn directory(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let Some(within) = asked(&fields) else { return missing(&app, &visitor) };
    let Some(path) = within.below(fields.get("name").trim()) else { return missing(&app, &visitor) };
    after(&app, &visitor, &within, done(&app, &visitor, &Change::Directory(path)).await).await
}

/// Makes a change, and logs who requested it.
async fn done(app: &Arc<App>, visitor: &Visitor, change: &Change) -> Result<(), Error> {
    let done = match writer(app) {
        Ok(writer) => files::change(writer, change, &operation::by(visitor)).await,
        Err(error) => Err(error),
    };
    let (action, target) = match change {
        Change::Rename { from, to, .. } => ("files.rename", format!("{} to {}", from.as_str(), to.as_str())),
        Change::Delete(path) => ("files.delete", path.as_str().to_owned()),
        Change::Directory(path) => ("files.directory", path.as_str().to_owned()),
    };
    operation::note(app, visitor, action, &target, done.is_ok()).await;
    done
}

/// The page of the directory again, with the result.
pub(super) async fn after(
    app: &Arc<App>,
    visitor: &Visitor,
    directory: &UrlPath,
    done: Result<(), Error>,
) -> Response {
    match done {
        Ok(()) => see_other(&format!("{}&done=1", place(directory.as_str(), ""))),
        Err(Error::Refused(problem)) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::CONFLICT);
            let fields = Fields::parse(query(&[("path", directory.as_str())]).as_bytes());
            screen(app, visitor, &fields, Some((status, &problem.detail))).await
        }
        Err(error) => failed((app, visitor), SCREEN, &error),
    }
}
