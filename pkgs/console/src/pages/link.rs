//! A link's page, its clicks, and its deletion.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use http::header;
use maud::{Markup, html};

use super::clicks::Clicks;
use super::links::{at, place};
use super::{Screen, attachment, csrf, failed, links, page as shown, see_other, text};
use crate::app::App;
use crate::fields::{Fields, query};
use crate::links::Link;
use crate::upstream::Error;
use crate::visitor::Visitor;

pub(crate) async fn page(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    match read(&app, &visitor, &code, &fields).await {
        Ok((link, clicks)) => {
            let content = show(&link, &clicks);
            shown(StatusCode::OK, (&app, &visitor), (Screen::Links, &link.code), content)
        }
        Err(error) => failed((&app, &visitor), (Screen::Links, "Link"), &error),
    }
}

/// A link, and its clicks.
async fn read(app: &App, visitor: &Visitor, code: &str, fields: &Fields) -> Result<(Link, Clicks), Error> {
    let (api, domain) = (links(app, visitor)?, fields.get("domain"));
    let (link, clicks) = tokio::join!(api.read(code, domain), Clicks::read(&api, code, fields));
    Ok((link?.0, clicks?))
}

fn show(link: &Link, clicks: &Clicks) -> Markup {
    html! {
        div.heading {
            h1 { (link.code) }
            @if link.status == "disabled" { span.badge { "disabled" } }
            div.buttons {
                a.button.primary href=(place(link, "/edit")) { "Edit" }
                a.button.danger href=(place(link, "/delete")) { "Delete" }
            }
        }
        div.two {
            (facts(link))
            figure.qr {
                img src=(place(link, "/qr.svg")) width="160" height="160" alt={ "QR code of " (link.short_url) };
                figcaption {
                    a href=(place(link, "/qr.svg")) download={ (link.code) ".svg" } { "SVG" } " "
                    a href=(place(link, "/qr.png")) download={ (link.code) ".png" } { "PNG" }
                }
            }
        }
        (clicks.show(&link.code, link.domain.as_deref().unwrap_or_default()))
    }
}

fn facts(link: &Link) -> Markup {
    let flags = [(link.forward_query, "hands the query on"), (link.protected, "asks for a password")];
    html! {
        dl.pairs.facts {
            div { dt { "Short" } dd { a href=(link.short_url) rel="noreferrer" { (link.short_url) } " " button.copy.quiet type="button" data-copy=(link.short_url) hidden { "Copy" } } }
            div { dt { "Leads to" } dd { bdi.long tabindex="0" { (link.target) } } }
            @if let Some(title) = &link.title { div { dt { "Title" } dd { bdi { (title) } } } }
            @if !link.tags.is_empty() {
                div { dt { "Tags" } dd { @for tag in &link.tags { a.tag href={ "/links?" (query(&[("tag", tag)])) } { bdi { (tag) } } " " } } }
            }
            div { dt { "Redirect" } dd { (link.redirect) @for (_, words) in flags.iter().filter(|(on, _)| *on) { ", " (words) } } }
            @if let Some(from) = &link.not_before { div { dt { "Not before" } dd { (text::instant(from)) } } }
            @if let Some(until) = &link.expires_at { div { dt { "Expires" } dd { (text::instant(until)) } } }
            div { dt { "Clicks" } dd { (text::grouped(link.clicks)) @if let Some(most) = link.max_clicks { " of at most " (text::grouped(most)) } } }
            div { dt { "Created" } dd { (text::instant(&link.created_at)) } }
            div { dt { "Edited" } dd { (text::instant(&link.updated_at)) } }
        }
    }
}

/// Clicks as a CSV file.
pub(crate) async fn csv(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let read = async { Clicks::read(&links(&app, &visitor)?, &code, &fields).await };
    match read.await {
        // The link exists, so its code is a valid file name.
        Ok(clicks) => {
            let name = format!("{code}-clicks.csv");
            attachment("text/csv; charset=utf-8", &name, clicks.rows().into())
        }
        Err(error) => failed((&app, &visitor), (Screen::Links, "Clicks"), &error),
    }
}

pub(crate) async fn qr_svg(
    app: State<Arc<App>>,
    code: Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    qr(app, code, visitor, fields, "svg", "512").await
}

pub(crate) async fn qr_png(
    app: State<Arc<App>>,
    code: Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    qr(app, code, visitor, fields, "png", "1024").await
}

async fn qr(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
    format: &str,
    size: &str,
) -> Response {
    let drawn = async {
        let look = [("format", format), ("size", size), ("domain", fields.get("domain"))];
        links(&app, &visitor)?.qr(&code, &look).await
    };
    match drawn.await {
        Ok(answer) => {
            let mut response = Response::new(answer.body.into());
            for name in [header::CONTENT_TYPE, header::ETAG] {
                if let Some(value) = answer.fields.get(&name) {
                    response.headers_mut().insert(name, value.clone());
                }
            }
            response
        }
        Err(error) => failed((&app, &visitor), (Screen::Links, "QR code"), &error),
    }
}

/// Asks for confirmation before a link and its clicks are deleted.
pub(crate) async fn ask_delete(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let read = async { links(&app, &visitor)?.read(&code, fields.get("domain")).await };
    let asked = (Screen::Links, "Delete link");
    match read.await {
        Ok((link, _)) => {
            let content = html! {
                h1 { "Delete " (link.code) "?" }
                p { "It leads to " bdi.long tabindex="0" { (link.target) } " and was followed " (text::number(link.clicks as usize, "time", "times")) ". Its clicks are deleted with it. Nothing brings them back." }
                form method="post" action=(at(&link.code, "", "/delete")) {
                    (csrf(&visitor))
                    input type="hidden" name="domain" value=(link.domain.as_deref().unwrap_or_default());
                    button.danger { "Delete" } " "
                    a.button href=(place(&link, "")) { "Keep it" }
                }
            };
            shown(StatusCode::OK, (&app, &visitor), asked, content)
        }
        Err(error) => failed((&app, &visitor), asked, &error),
    }
}

pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let deleted = async { links(&app, &visitor)?.delete(&code, fields.get("domain")).await };
    match deleted.await {
        Ok(()) => see_other("/links?done=1"),
        Err(error) => failed((&app, &visitor), (Screen::Links, "Delete link"), &error),
    }
}
