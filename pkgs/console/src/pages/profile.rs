//! Profile: what a service or the whole machine does, as a flame graph. The console draws it, and zooming works with
//! links.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::{Screen, attachment, csrf, operation, page as shown, refused, see_other, text};
use crate::app::App;
use crate::fields::{Fields, query};
use crate::flame::{self, Block, HEIGHT, MOST_SECONDS, Tree, WIDTH, percent};
use crate::machine::{Watch, Watched};
use crate::profiles::Profile;
use crate::visitor::Visitor;

const SCREEN: (Screen, &str) = (Screen::Profile, "Profile");

/// The suggested services; any other can be typed.
const SERVICES: [&str; 4] = ["links", "files", "api", "console"];

/// The most blocks that a page draws, and the most functions in its table.
const BLOCKS: usize = 1500;
const LISTED: usize = 25;

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    overview(&app, &visitor, StatusCode::OK, &Fields::default(), None)
}

/// The form, and the recorded profiles.
fn overview(
    app: &App,
    visitor: &Visitor,
    status: StatusCode,
    fields: &Fields,
    wrong: Option<&str>,
) -> Response {
    let chosen = fields.get("service");
    let seconds = fields.some("seconds").unwrap_or("10");
    let waiting = fields.get("kind") == "waiting";
    let content = html! {
        h1 { "Profile" }
        @if let Some(wrong) = wrong { p.alert role="alert" { (wrong) } }
        @if app.machine.helped() {
            form.search method="post" action="/profile" {
                (csrf(visitor))
                div.field {
                    label for="service" { "Of" }
                    select #service name="service" {
                        option value="" { "the whole machine" }
                        @for service in SERVICES { option value=(service) selected[chosen == service] { (service) } }
                    }
                }
                div.field {
                    label for="other" { "or another service" }
                    input #other type="text" name="other" value=(fields.get("other")) maxlength="255" spellcheck="false" placeholder="nginx.service";
                }
                div.field {
                    label for="kind" { "What" }
                    select #kind name="kind" {
                        option value="cpu" selected[!waiting] { "runs on a CPU" }
                        option value="waiting" selected[waiting] { "waits" }
                    }
                }
                div.field {
                    label for="seconds" { "Seconds" }
                    input #seconds type="number" name="seconds" min="1" max=(MOST_SECONDS) value=(seconds) required;
                }
                button.primary { "Look" }
            }
            p.hint { "The kernel notes which function runs, 99 times a second of each CPU's time, or for how long threads wait. Services go on meanwhile." }
        } @else {
            p { "This console was started without " code { "--helper" } ", so it may not look at processes. In a shell:" }
            pre tabindex="0" { code { "sudo linerate profile links --seconds 10 --output links.svg" } }
        }
        (kept(app))
    };
    shown(status, (app, visitor), SCREEN, content)
}

fn kept(app: &App) -> Markup {
    let all = app.profiles.all();
    html! {
        @if !all.is_empty() {
            h2 { "Kept until the console ends" }
            table.cards {
                thead { tr { th scope="col" { "Profile" } th scope="col" { "Of" } th scope="col" { "What" } th.number scope="col" { "Seconds" } th scope="col" { "When" } } }
                tbody { @for profile in &all { tr {
                    th scope="row" { a href=(place(profile.number)) { (profile.number) } }
                    td data-label="Of" { (profile.what()) }
                    td data-label="What" { (kind(profile)) @match &profile.seen {
                        None => { " " span.badge.notice { "under way" } },
                        Some(Err(_)) => { " " span.badge.bad { "failed" } },
                        Some(Ok(_)) => {},
                    } }
                    td.number data-label="Seconds" { (profile.watch.seconds) }
                    td data-label="When" { (text::span(text::now().saturating_sub(profile.at))) " ago" }
                } } }
            }
        }
    }
}

/// Starts recording.
pub(crate) async fn take(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(response) = operation::allowed(&app, &visitor, SCREEN).await {
        return response;
    }
    let wrong = |status, why: &str| overview(&app, &visitor, status, &fields, Some(why));
    if !app.machine.helped() {
        return wrong(StatusCode::CONFLICT, "this console was started without --helper");
    }
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let seconds = match fields.get("seconds").trim().parse() {
        Ok(seconds) if (1..=MOST_SECONDS).contains(&seconds) => seconds,
        _ => return wrong(unprocessable, "Seconds are a number from 1 to 60."),
    };
    let waiting = match fields.get("kind") {
        "cpu" => false,
        "waiting" => true,
        _ => return wrong(unprocessable, "What is looked at either runs on a CPU or waits."),
    };
    let service = fields.some("other").or(fields.some("service"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    if service
        .is_some_and(|name| name.len() > 255 || name.starts_with(['-', '.']) || !name.chars().all(plain))
    {
        return wrong(unprocessable, "A service has letters, digits and -_.@: in its name.");
    }
    let watch = Watch { service: service.map(str::to_owned), seconds, waiting };
    let Some(number) = app.profiles.begin(watch.clone(), text::now()) else {
        return wrong(StatusCode::CONFLICT, "Another profile is under way; look again once it is done.");
    };
    let who = operation::by(&visitor);
    operation::note(&app, &visitor, "profile", watch.service.as_deref().unwrap_or("the machine"), true).await;
    let looking = Arc::clone(&app);
    // A separate thread: closing the page doesn't end the recording, and the recording doesn't delay the console's
    // shutdown.
    let begun = std::thread::Builder::new().name("profile".into()).spawn(move || {
        let seen =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| looking.machine.watch(&watch, &who)));
        looking.profiles.end(number, seen.unwrap_or_else(|_| Err("it ended in a panic".into())));
    });
    if let Err(error) = begun {
        app.profiles.end(number, Err(format!("no thread: {error}")));
    }
    see_other(&place(number))
}

/// A profile's page.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(number): Path<u64>,
    fields: Fields,
) -> Response {
    let profile = match found(&app, &visitor, number).await {
        Ok(profile) => profile,
        Err(response) => return response,
    };
    let content = match &profile.seen {
        None => under_way(&profile),
        Some(Err(why)) => html! {
            div #profile {
                (heading(&profile))
                p.alert role="alert" { "Nothing was seen: " (why) }
                p { a href="/profile" { "All profiles" } }
            }
        },
        Some(Ok(seen)) => match tree(&app, seen, &fields).await {
            Err(why) => html! { div #profile { (heading(&profile)) p.alert role="alert" { (why) } } },
            Ok((tree, with)) => graph(&app, &profile, seen, &tree, with, &fields),
        },
    };
    shown(StatusCode::OK, (&app, &visitor), SCREEN, content)
}

/// Downloads the picture.
pub(crate) async fn svg(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(number): Path<u64>,
    fields: Fields,
) -> Response {
    let profile = match found(&app, &visitor, number).await {
        Ok(profile) => profile,
        Err(response) => return response,
    };
    let Some(Ok(seen)) = &profile.seen else {
        return refused(StatusCode::NOT_FOUND, "there is nothing to draw");
    };
    match tree(&app, seen, &fields).await {
        Err(why) => refused(StatusCode::UNPROCESSABLE_ENTITY, &why),
        Ok((tree, _)) => {
            let title = format!("{}, {}, {} s", profile.what(), kind(&profile), profile.watch.seconds);
            let drawn = flame::svg(&tree, &title, profile.unit());
            attachment("image/svg+xml", &format!("{}.svg", file(&profile)), drawn.into())
        }
    }
}

/// Downloads the stacks.
pub(crate) async fn folded(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(number): Path<u64>,
) -> Response {
    match found(&app, &visitor, number).await {
        Err(response) => response,
        Ok(profile) => match &profile.seen {
            Some(Ok(seen)) => attachment(
                "text/plain; charset=utf-8",
                &format!("{}.folded", file(&profile)),
                seen.folded.clone().into(),
            ),
            _ => refused(StatusCode::NOT_FOUND, "there are no stacks"),
        },
    }
}

async fn found(app: &Arc<App>, visitor: &Visitor, number: u64) -> Result<Arc<Profile>, Response> {
    operation::allowed(app, visitor, SCREEN).await?;
    app.profiles.get(number).ok_or_else(|| {
        let content = html! {
            h1 { "There is no such profile" }
            p { "The newest are kept, until the console ends. " a href="/profile" { "All profiles" } }
        };
        shown(StatusCode::NOT_FOUND, (app, visitor), SCREEN, content)
    })
}

/// The tree of a recording, optionally compared with another profile, and the number of that profile.
async fn tree(app: &App, seen: &Watched, fields: &Fields) -> Result<(Tree, Option<u64>), String> {
    let now = seen.folded.clone();
    let with =
        fields.some("with").map(|with| with.parse().map_err(|_| "that is no profile's number".to_owned()));
    let with: Option<u64> = with.transpose()?;
    let before = match with {
        None => None,
        Some(number) => match app.profiles.get(number).as_deref() {
            Some(Profile { seen: Some(Ok(before)), .. }) => Some(before.folded.clone()),
            _ => return Err(format!("there is no profile {number} to compare with")),
        },
    };
    let made = tokio::task::spawn_blocking(move || match before {
        Some(before) => Tree::compare(&before, &now),
        None => Tree::parse(&now),
    });
    let made = made.await.map_err(|error| error.to_string())?;
    made.map(|tree| (tree, with)).map_err(|error| error.to_string())
}

fn under_way(profile: &Profile) -> Markup {
    let left = (profile.at + profile.watch.seconds).saturating_sub(text::now());
    html! {
        // Without scripts, the user follows the link to load the page again.
        div #profile hx-get=(place(profile.number)) hx-trigger="load delay:1s" hx-select="#profile" hx-swap="outerHTML" {
            (heading(profile))
            p role="status" { @if left > 0 { "Looking, for " (left) " more seconds." } @else { "Finding the names of functions." } }
            p { a.button href=(place(profile.number)) { "Look again" } }
        }
    }
}

fn graph(
    app: &App,
    profile: &Profile,
    seen: &Watched,
    tree: &Tree,
    with: Option<u64>,
    fields: &Fields,
) -> Markup {
    let unit = profile.unit();
    let zoom = fields.some("zoom").and_then(|zoom| zoom.parse().ok());
    let root = zoom.filter(|&node| tree.node(node).is_some_and(|node| node.total > 0)).unwrap_or(0);
    let with = with.map(|with| with.to_string()).unwrap_or_default();
    let link = |zoom: usize| {
        let zoom = if zoom == 0 { String::new() } else { zoom.to_string() };
        let asked = query(&[("with", &with), ("zoom", &zoom)]);
        let base = place(profile.number);
        format!("{base}{}{asked}#graph", if asked.is_empty() { "" } else { "?" })
    };
    let saved = |what: &str| {
        let asked = query(&[("with", &with)]);
        format!("{}/{what}{}{asked}", place(profile.number), if asked.is_empty() { "" } else { "?" })
    };
    let others: Vec<_> = app
        .profiles
        .all()
        .into_iter()
        .filter(|other| {
            other.number != profile.number
                && matches!(other.seen, Some(Ok(_)))
                && other.watch.waiting == profile.watch.waiting
        })
        .collect();
    html! {
        div #profile {
            (heading(profile))
            p { (unit.show(tree.total())) " by " code { (seen.event) }
                @if !seen.kernel { ", without the kernel's part" }
                @if seen.lost > 0 { ", " (seen.lost) " records lost" } "." }
            div.buttons {
                a.button href=(saved("svg")) download { "Save as SVG" }
                a.button href=(place(profile.number) + "/folded") download { "Save the stacks" }
                a.button href="/profile" { "All profiles" }
            }
            @if !others.is_empty() {
                form.search method="get" action=(place(profile.number)) {
                    div.field {
                        label for="with" { "Compare with" }
                        select #with name="with" {
                            option value="" { "none" }
                            @for other in &others {
                                option value=(other.number) selected[other.number.to_string() == with] {
                                    (other.number) ": " (other.what()) ", " (kind(other)) ", " (other.watch.seconds) " s"
                                }
                            }
                        }
                    }
                    button { "Compare" }
                }
            }
            @if tree.compared() { p.hint { "Red has grown since that profile, blue has shrunk; what is gone is not drawn." } }
            @if tree.total() == 0 {
                p.empty { "Nothing was seen: what is looked at did nothing of the kind meanwhile." }
            } @else {
                section aria-labelledby="graph" {
                    h2 #graph { "Flame graph" }
                    @if root != 0 { @if let Some(node) = tree.node(root) {
                        p { "Zoomed to " code { (node.name) } ": " (unit.show(node.total)) ", " (share(node.total, tree.total())) ". " a href=(link(0)) { "All of it" } }
                    } }
                    p.hint { "Callers stand above what they call; the width is the share. A block zooms. What is in it is in the table below, too." }
                    (drawing(tree, root, profile, &link))
                }
                (table(tree, profile))
            }
        }
    }
}

/// The picture on the page. It is for people who can see it and use a pointer; the table has the same information as
/// text.
fn drawing(tree: &Tree, root: usize, profile: &Profile, link: &dyn Fn(usize) -> String) -> Markup {
    let unit = profile.unit();
    let blocks = flame::blocks(tree, root, BLOCKS);
    let high = flame::height(&blocks);
    let block = |Block { node: number, row, x, width }: &Block| {
        let node = tree.node(*number)?;
        let label = flame::label(&node.name, *width);
        Some(html! {
            a href=(link(*number)) tabindex="-1" {
                title { (node.name) ", " (unit.show(node.total)) ", " (share(node.total, tree.total()))
                    @if tree.compared() { ", before " (share(node.before, tree.total())) } }
                rect x=(format!("{x:.2}")) y=(row * HEIGHT) width=(format!("{width:.2}")) height=(HEIGHT - 1) fill=(flame::colour(tree, node)) {}
                @if !label.is_empty() { text x=(format!("{:.2}", x + 3.0)) y=(row * HEIGHT + 13) { (label) } }
            }
        })
    };
    html! {
        svg.flame viewBox=(format!("0 0 {WIDTH} {high}")) aria-hidden="true" { @for drawn in blocks.iter().filter_map(block) { (drawn) } }
    }
}

fn table(tree: &Tree, profile: &Profile) -> Markup {
    let unit = profile.unit();
    html! {
        h2 { "Functions" }
        table.cards {
            thead { tr { th scope="col" { "Function" } th.number scope="col" { "Itself" } th.number scope="col" { "With what it calls" } th.number scope="col" { "Weight" } } }
            tbody { @for hot in tree.hottest(LISTED) { tr {
                th scope="row" { code { (hot.name) } }
                td.number data-label="Itself" { (share(hot.own, tree.total())) }
                td.number data-label="With what it calls" { (share(hot.total, tree.total())) }
                td.number data-label="Weight" { (unit.show(hot.own)) }
            } } }
        }
    }
}

fn heading(profile: &Profile) -> Markup {
    html! { h1 { "Profile " (profile.number) ": " (profile.what()) ", " (kind(profile)) ", " (profile.watch.seconds) " s" } }
}

fn kind(profile: &Profile) -> &'static str {
    if profile.watch.waiting { "waiting" } else { "on CPU" }
}

fn place(number: u64) -> String {
    format!("/profile/{number}")
}

/// The name of a downloaded file.
fn file(profile: &Profile) -> String {
    format!("profile-{}-{}", profile.number, profile.watch.service.as_deref().unwrap_or("machine"))
}

fn share(weight: u64, all: u64) -> String {
    format!("{:.1}%", percent(weight, all))
}
