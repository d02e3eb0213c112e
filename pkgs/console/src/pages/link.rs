//! A link: what it is, its clicks, and its end.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use http::header;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use maud::{Markup, html};
use serde_json::json;

use super::links::{at, place};
use super::{Screen, attachment, csrf, failed, links, page as shown, see_other, text};
use crate::app::App;
use crate::assets;
use crate::fields::{Fields, query};
use crate::links::{Count, Link, Stats};
use crate::upstream::Error;
use crate::visitor::Visitor;

/// Spans of days that are offered; the second is what is shown unless another is asked for.
const SPANS: [i64; 4] = [7, 30, 90, 365];

/// Days that are looked at, and those before them.
struct Period {
    days: i64,
    from: Date,
    to: Date,
    compare: bool,
}

impl Period {
    fn of(fields: &Fields) -> Self {
        let to = Timestamp::now().to_zoned(TimeZone::UTC).date();
        let days = fields.get("days").parse().ok().filter(|days| SPANS.contains(days)).unwrap_or(SPANS[1]);
        Self { days, from: to.saturating_sub((days - 1).days()), to, compare: fields.has("compare") }
    }

    /// As many days, right before.
    fn before(&self) -> Self {
        let back = |date: Date| date.saturating_sub(self.days.days());
        Self { days: self.days, from: back(self.from), to: back(self.to), compare: false }
    }

    /// Clicks of each of its days, those without any included.
    fn clicks(&self, stats: &Stats) -> Vec<(String, u64)> {
        let day = |index: i64| self.from.saturating_add(index.days()).to_string();
        let of = |name: &str| stats.days.iter().find(|one| one.name == name).map_or(0, |one| one.clicks);
        (0..self.days)
            .map(day)
            .map(|name| {
                let clicks = of(&name);
                (name, clicks)
            })
            .collect()
    }
}

pub(crate) async fn page(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    match read(&app, &visitor, &code, &fields).await {
        Ok((link, stats, before)) => {
            let content = show(&link, &Period::of(&fields), &stats, before.as_ref());
            shown(StatusCode::OK, (&app, &visitor), (Screen::Links, &link.code), content)
        }
        Err(error) => failed((&app, &visitor), (Screen::Links, "Link"), &error),
    }
}

/// A link, its clicks, and where they are to be compared those of the days before.
async fn read(
    app: &App,
    visitor: &Visitor,
    code: &str,
    fields: &Fields,
) -> Result<(Link, Stats, Option<Stats>), Error> {
    let api = links(app, visitor)?;
    let domain = fields.get("domain");
    let stats = async |period: &Period| {
        let (from, to) = (period.from.to_string(), period.to.to_string());
        api.stats(Some(code), &[("from", &from), ("to", &to), ("domain", domain)]).await
    };
    let period = Period::of(fields);
    let (link, now) = tokio::join!(api.read(code, domain), stats(&period));
    let before = if period.compare { Some(stats(&period.before()).await?) } else { None };
    Ok((link?.0, now?, before))
}

fn show(link: &Link, period: &Period, stats: &Stats, before: Option<&Stats>) -> Markup {
    let domain = link.domain.as_deref().unwrap_or_default();
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
        section aria-labelledby="clicks" {
            h2 #clicks { "Clicks" }
            form.search method="get" action=(at(&link.code, "", "")) {
                input type="hidden" name="domain" value=(domain);
                div.field {
                    label for="days" { "Days" }
                    select #days name="days" {
                        @for days in SPANS { option value=(days) selected[days == period.days] { "the last " (days) } }
                    }
                }
                label.tick { input type="checkbox" name="compare" checked[period.compare]; " Compare with as many before" }
                button { "Show" }
                a.button href={ (at(&link.code, "", "/clicks.csv")) "?" (query(&[("domain", domain), ("days", &period.days.to_string()), ("compare", if period.compare { "on" } else { "" })])) } download { "CSV" }
            }
            (clicks(period, stats, before))
        }
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

fn clicks(period: &Period, stats: &Stats, before: Option<&Stats>) -> Markup {
    let days = period.clicks(stats);
    let earlier = before.map(|before| period.before().clicks(before));
    let series = json!({
        "days": days.iter().map(|(day, _)| day).collect::<Vec<_>>(),
        "clicks": days.iter().map(|(_, clicks)| clicks).collect::<Vec<_>>(),
        "before": earlier.as_ref().map(|days| days.iter().map(|(_, clicks)| clicks).collect::<Vec<_>>()),
    });
    html! {
        p {
            strong { (text::number(stats.people() as usize, "click", "clicks")) } " from " (period.from) " to " (period.to)
            @if stats.bots() > 0 { ", and " (text::grouped(stats.bots())) " by known bots" }
            @if let Some(before) = before {
                "; " (text::grouped(before.people())) " in the " (period.days) " days before" (change(stats.people(), before.people()))
                @if before.bots() > 0 { ", and " (text::grouped(before.bots())) " by known bots" }
            }
            @if let Some(older) = &stats.older { span.hint { "; " (text::grouped(older.clicks)) " from " (older.from) " to " (older.to) " are not told apart by day any more" } }
        }
        link rel="stylesheet" href=(assets::path("uplot.css"));
        script src=(assets::path("uplot.js")) defer {}
        div.chart data-series=(series) role="img" aria-label="Clicks by day; the table below has the same figures" hidden {}
        details {
            summary { "By day" }
            div.scroll tabindex="0" role="region" aria-label="Clicks by day" {
                table {
                    thead { tr { th scope="col" { "Day" } th.number scope="col" { "Clicks" } @if earlier.is_some() { th.number scope="col" { "Before" } } } }
                    tbody {
                        @for (index, (day, clicks)) in days.iter().enumerate().rev() {
                            tr { th scope="row" { (day) } td.number { (text::grouped(*clicks)) }
                                @if let Some(earlier) = &earlier { td.number { (text::grouped(earlier[index].1)) } } }
                        }
                    }
                }
            }
        }
        div.two {
            (ranks("Referrers", "Host", &stats.referrers, stats.clicks, "direct"))
            (ranks("Agents", "Kind", &stats.agents, stats.clicks, "unknown"))
        }
    }
}

/// ` (+12 %)`.
fn change(now: u64, before: u64) -> String {
    match before {
        0 => String::new(),
        before => format!(" ({:+.0} %)", (now as f64 / before as f64 - 1.0) * 100.0),
    }
}

/// Who has how many, most first.
fn ranks(heading: &str, column: &str, counts: &[Count], all: u64, nameless: &str) -> Markup {
    html! {
        section {
            h3 { (heading) }
            @if counts.is_empty() { p.hint { "None in these days." } }
            @else {
                table {
                    thead { tr { th scope="col" { (column) } th.number scope="col" { "Clicks" } th.number scope="col" { "Share" } } }
                    tbody {
                        @for one in counts {
                            tr {
                                th scope="row" { bdi { @if one.name.is_empty() { (nameless) } @else { (one.name) } } }
                                td.number { (text::grouped(one.clicks)) }
                                td.number { (text::percent(one.clicks as f64 / all.max(1) as f64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Clicks as a table for other programs.
pub(crate) async fn csv(
    State(app): State<Arc<App>>,
    Path(code): Path<String>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    match read(&app, &visitor, &code, &fields).await {
        Ok((link, stats, before)) => {
            let rows = rows(&Period::of(&fields), &stats, before.as_ref());
            attachment("text/csv; charset=utf-8", &format!("{}-clicks.csv", link.code), rows.into())
        }
        Err(error) => failed((&app, &visitor), (Screen::Links, "Clicks"), &error),
    }
}

/// All sums of a period, with those of the days before beside them: of a day those of the day that is as many days earlier.
fn rows(period: &Period, stats: &Stats, before: Option<&Stats>) -> String {
    let mut rows = format!("kind,name,clicks{}\r\n", if before.is_some() { ",before" } else { "" });
    let mut row = |kind: &str, name: &str, clicks: u64, earlier: Option<u64>| {
        let earlier = earlier.map_or_else(String::new, |earlier| format!(",{earlier}"));
        rows.push_str(&format!("{kind},{},{clicks}{earlier}\r\n", cell(name)));
    };
    let earlier = before.map(|before| period.before().clicks(before));
    for (index, (name, clicks)) in period.clicks(stats).iter().enumerate() {
        row("day", name, *clicks, earlier.as_ref().map(|days| days[index].1));
    }
    for (kind, of) in [("referrer", Stats::referrers as fn(&Stats) -> &[Count]), ("agent", Stats::agents)] {
        let of_name = |counts: &[Count], name: &str| {
            counts.iter().find(|count| count.name == name).map_or(0, |count| count.clicks)
        };
        for Count { name, clicks } in of(stats) {
            row(kind, name, *clicks, before.map(|before| of_name(of(before), name)));
        }
        // Those that there are no more.
        let gone = before.map_or(&[][..], of).iter();
        for Count { name, clicks } in gone.filter(|one| !of(stats).iter().any(|now| now.name == one.name)) {
            row(kind, name, 0, Some(*clicks));
        }
    }
    rows
}

/// A name as a cell (RFC 4180), which no spreadsheet takes for a formula: referrers are what visitors say.
fn cell(name: &str) -> String {
    let formula = name.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let name = if formula { format!("'{name}") } else { name.to_owned() };
    if name.contains([',', '"', '\r', '\n']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name }
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

/// Asks before a link and its clicks are gone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_visitors_say_is_no_formula() {
        for (name, expected) in [
            ("example.org", "example.org"),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("a,b", "\"a,b\""),
            ("@a\"b", "\"'@a\"\"b\""),
        ] {
            assert_eq!(cell(name), expected);
        }
    }

    #[test]
    fn a_comparison_has_both_periods_in_each_line() {
        let period = Period {
            days: 2,
            from: Date::constant(2030, 1, 31),
            to: Date::constant(2030, 2, 1),
            compare: true,
        };
        let count = |name: &str, clicks| Count { name: name.into(), clicks };
        let now = Stats {
            days: vec![count("2030-02-01", 4)],
            referrers: vec![count("a.example", 3), count("=b", 1)],
            agents: vec![count("firefox", 3), count("bot", 1)],
            clicks: 4,
            older: None,
        };
        let before = Stats {
            days: vec![count("2030-01-29", 2)],
            referrers: vec![count("a.example", 1), count("gone.example", 1)],
            agents: vec![count("firefox", 2)],
            clicks: 2,
            older: None,
        };
        assert_eq!(
            rows(&period, &now, Some(&before)),
            "kind,name,clicks,before\r\nday,2030-01-31,0,2\r\nday,2030-02-01,4,0\r\nreferrer,a.example,3,1\r\n\
             referrer,'=b,1,0\r\nreferrer,gone.example,0,1\r\nagent,firefox,3,2\r\nagent,bot,1,0\r\n"
        );
        assert_eq!(
            rows(&period, &before, None),
            "kind,name,clicks\r\nday,2030-01-31,0\r\nday,2030-02-01,0\r\nreferrer,a.example,1\r\n\
             referrer,gone.example,1\r\nagent,firefox,2\r\n"
        );
        assert_eq!((now.people(), now.bots()), (3, 1));
    }

    #[test]
    fn days_without_clicks_are_days_too() {
        let period = Period {
            days: 3,
            from: Date::constant(2030, 1, 30),
            to: Date::constant(2030, 2, 1),
            compare: true,
        };
        let stats = Stats { days: vec![Count { name: "2030-01-31".into(), clicks: 4 }], ..Stats::default() };
        let clicks = period.clicks(&stats);
        let clicks: Vec<_> = clicks.iter().map(|(day, clicks)| (day.as_str(), *clicks)).collect();
        assert_eq!(clicks, [("2030-01-30", 0), ("2030-01-31", 4), ("2030-02-01", 0)]);
        let before = period.before();
        assert_eq!(
            (before.from.to_string(), before.to.to_string()),
            ("2030-01-27".into(), "2030-01-29".into())
        );
    }
}
