//! The overview: the machine in figures, live.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use maud::{Markup, html};
use tokio::time::timeout;

use super::{Screen, doctor, links, live, page as shown, text};
use crate::app::App;
use crate::links::Links;
use crate::machine::{Disk, Host};
use crate::overview::{Service, State as Health};
use crate::visitor::Visitor;

/// How often the doctor checks again while somebody watches.
const DOCTOR: Duration = Duration::from_secs(30);

/// How many findings the overview shows.
const FINDINGS: usize = 5;

/// How long the page waits for clicks to be counted. If counting takes longer, they are shown later.
const COUNTING: Duration = Duration::from_millis(50);

/// The number of days, including today, whose clicks are summed up.
const DAYS: i64 = 30;

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    let (figures, clicks) = tokio::join!(figures(Arc::clone(&app)), clicks(&app, &visitor));
    let examined = app.doctor_lately(DOCTOR);
    let content = html! {
        h1 { "Overview" }
        div hx-ext="sse" sse-connect="/live/overview" sse-close=(live::OVER) {
            div #figures sse-swap="overview" { (figures) }
        }
        (clicks)
        section #findings aria-labelledby="ails" {
            h2 #ails { "What ails the box" }
            @match examined.as_deref() {
                None => p.hint hx-get="/" hx-trigger="load delay:2s" hx-target="#findings" hx-select="#findings" hx-swap="outerHTML" { "Doctor is looking; " a href="/doctor" { "wait for it" } "." },
                Some((_, Err(why))) => p.alert role="alert" { "Doctor cannot say: " (why) },
                Some((_, Ok(examined))) => {
                    (doctor::summary(examined))
                    @if !examined.findings.is_empty() {
                        ul.findings {
                            @for finding in examined.findings.iter().take(FINDINGS) { (doctor::finding(finding, examined.at)) }
                        }
                    }
                    p { a href="/doctor" {
                        @if examined.findings.len() > FINDINGS { "All " (examined.findings.len()) " findings" }
                        @else { "All rules" }
                    } }
                },
            }
        }
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Overview, "Overview"), content)
}

/// The clicks of all links that the visitor's key may see. The first visitor's request starts counting. If that takes
/// longer than the page waits, it continues in the background.
async fn clicks(app: &Arc<App>, visitor: &Visitor) -> Markup {
    // A visitor without a links key sees no clicks here.
    let Ok(token) = links(app, visitor).map(|links| links.token.to_owned()) else { return html! {} };
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let counting = tokio::spawn({
        let app = Arc::clone(app);
        async move {
            let upstream = app.links.as_ref()?;
            let (from, to) = (today.saturating_sub((DAYS - 1).days()).to_string(), today.to_string());
            let days = [("from", from.as_str()), ("to", to.as_str())];
            let counted = async { Links { upstream, token: &token }.stats(None, &days).await.map(Arc::new) };
            Some(app.clicks.of(&token, counted).await)
        }
    });
    let counted = match timeout(COUNTING, counting).await {
        Err(_) => None,
        Ok(Ok(Some(counted))) => Some(counted),
        Ok(_) => return html! {},
    };
    html! {
        section #clicks aria-labelledby="clicked" {
            h2 #clicked { "Clicks" }
            @match &counted {
                None => p.hint hx-get="/" hx-trigger="load delay:1s" hx-target="#clicks" hx-select="#clicks" hx-swap="outerHTML" { "They are being counted; load the page again to see them." },
                // The service's card shows errors from links in detail.
                Some(Err(error)) => p.hint { "Not counted: " (error) },
                Some(Ok(stats)) => dl.machine {
                    div { dt { "Today" } dd { (text::grouped(stats.of_day(&today.to_string()))) } }
                    div { dt { "In " (DAYS) " days" } dd { (text::grouped(stats.people())) } }
                    div { dt { "By known bots" } dd { (text::grouped(stats.bots())) } }
                },
            }
        }
    }
}

/// The figures, updated each second.
pub(crate) async fn live(State(app): State<Arc<App>>, visitor: Visitor) -> Response {
    live::events(&app, visitor, "overview", figures)
}

/// The part that updates by itself. Nothing in it can have the focus, which each update would remove.
async fn figures(app: Arc<App>) -> Markup {
    let (services, host) = tokio::join!(app.sampler.now(), app.host());
    html! {
        (machine(&host))
        div.services { @for service in &services { (card(service)) } }
    }
}

fn machine(host: &Host) -> Markup {
    let memory = host.memory.map(|(all, available)| {
        let used = all.saturating_sub(available) as f64;
        format!("{} of {}", text::bytes(used), text::bytes(all as f64))
    });
    let load = host.load.map(|load| match host.cpus {
        Some(cpus) => format!("{load:.2} on {}", text::number(cpus, "CPU", "CPUs")),
        None => format!("{load:.2}"),
    });
    let figures = [
        ("Host", host.name.clone()),
        ("Up", host.uptime.map(text::span)),
        ("Generation", host.generation.clone()),
        ("Version", host.version.clone()),
        ("Trial", host.trial.clone()),
        ("Last update", host.updated.map(|at| format!("{} ago", text::span(text::now().saturating_sub(at))))),
        ("Kernel", host.kernel.clone()),
        ("Load", load),
        ("Memory", memory),
        ("Disk free", disks(&host.disks)),
    ];
    html! {
        dl.machine {
            @for (name, value) in figures {
                @if let Some(value) = value { div { dt { (name) } dd { (value) } } }
            }
        }
    }
}

/// `links, api 40 %; files 12 %`: the free space on the file systems that hold the services' data.
fn disks(disks: &[Disk]) -> Option<String> {
    let text = |disk: &Disk| match &disk.services[..] {
        [] => format!("{} %", disk.free_percent),
        services => format!("{} {} %", services.join(", "), disk.free_percent),
    };
    (!disks.is_empty()).then(|| disks.iter().map(text).collect::<Vec<_>>().join("; "))
}

fn card(service: &Service) -> Markup {
    let (class, word, why) = match &service.state {
        Health::Ready => ("good", "ready", None),
        Health::NotReady(why) => ("bad", "not ready", Some(why)),
        Health::Down(why) => ("bad", "down", Some(why)),
    };
    let since = service.started.map(|started| text::now().saturating_sub(started as u64));
    let mut figures = vec![
        ("Errors/s", text::or_none(service.failures, text::count)),
        ("Connections", text::or_none(service.open, text::count)),
    ];
    match service.name {
        "files" => figures.push(("Sent/s", text::or_none(service.sent, text::bytes))),
        _ => {
            figures.push(("p50", text::or_none(service.times, |(half, _)| text::time(half))));
            figures.push(("p99", text::or_none(service.times, |(_, most)| text::time(most))));
            figures.push(("Cache hits", text::or_none(service.hits, text::percent)));
        }
    }
    figures.push(("CPU", text::or_none(service.cpu, text::percent)));
    figures.push(("Memory", text::or_none(service.memory, text::bytes)));
    html! {
        section.card aria-label=(service.name) {
            header {
                h2 { (service.name) }
                span class={ "badge " (class) } { (word) }
            }
            @if let Some(why) = why { p.why { (why) } }
            @if !matches!(service.state, Health::Down(_)) {
                p.rate {
                    strong { (text::or_none(service.rate, text::count)) } " requests/s"
                    @if let Some(requests) = service.requests {
                        span.hint { " " (text::count(requests)) @if let Some(since) = since { " in " (text::span(since)) } }
                    }
                }
                (curve(&service.curve))
                dl { @for (name, value) in figures { div { dt { (name) } dd { (value) } } } }
            }
        }
    }
}

/// A chart of the requests per second of the last minute. The console draws it, so no script is needed.
fn curve(values: &[Option<f64>]) -> Markup {
    const WIDTH: usize = 60;
    let most = values.iter().flatten().fold(1.0_f64, |most, value| most.max(*value));
    let mut path = String::new();
    let mut pen_down = false;
    let first = WIDTH.saturating_sub(values.len());
    for (index, value) in values.iter().enumerate() {
        if let Some(value) = value {
            let step = if pen_down { 'L' } else { 'M' };
            path.push_str(&format!("{step}{} {:.1}", first + index, 23.0 - value / most * 22.0));
        }
        pen_down = value.is_some();
    }
    html! {
        svg.curve viewBox="0 0 60 24" preserveAspectRatio="none" aria-hidden="true" {
            path d=(path) vector-effect="non-scaling-stroke" {}
        }
    }
}
