//! A link's clicks: by hour and day, with bots counted separately, by referrer and visitor, and compared with the
//! previous period.

use std::collections::HashMap;

use jiff::civil::{Date, DateTime};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use maud::{Markup, html};
use serde_json::json;

use super::links::at;
use super::text;
use crate::assets;
use crate::fields::{Fields, query};
use crate::links::{Count, Links, Stats, TimeCount};
use crate::upstream::Error;

/// The numbers of days to choose from. 1 means the last 24 hours, and 30 is the default.
const SPANS: [i64; 5] = [1, 7, 30, 90, 365];

/// Up to this many days, hours are shown too.
const BY_HOUR: i64 = 7;

/// The selected period: the last 24 hours or the last days.
#[derive(Clone, Copy)]
struct Period {
    days: i64,
    /// Its last hour, in UTC.
    last: DateTime,
}

impl Period {
    fn of(fields: &Fields) -> Self {
        let days = fields.get("days").parse().ok().filter(|days| SPANS.contains(days)).unwrap_or(SPANS[2]);
        Self { days, last: Timestamp::now().to_zoned(TimeZone::UTC).datetime() }
    }

    /// The previous period of the same length.
    fn before(self) -> Self {
        Self { last: self.last.saturating_sub(self.days.days()), ..self }
    }

    fn is_by_hour(self) -> bool {
        self.days == 1
    }

    /// Its first and its last day.
    fn dates(self) -> (Date, Date) {
        let back = if self.is_by_hour() { 23.hours() } else { (self.days - 1).days() };
        (self.last.saturating_sub(back).date(), self.last.date())
    }

    /// Its hours or days, as the API names them.
    fn names(self) -> Vec<String> {
        let hour = |ago: i64| self.last.saturating_sub(ago.hours()).strftime("%Y-%m-%dT%H").to_string();
        let day = |ago: i64| self.last.date().saturating_sub(ago.days()).to_string();
        match self.is_by_hour() {
            true => (0..24).rev().map(hour).collect(),
            false => (0..self.days).rev().map(day).collect(),
        }
    }

    /// The clicks in each hour or day, including those without clicks.
    fn counts(self, stats: &Stats) -> Vec<TimeCount> {
        let told = if self.is_by_hour() { &stats.hours } else { &stats.days };
        let told: HashMap<&str, &TimeCount> = told.iter().map(|one| (one.name.as_str(), one)).collect();
        let one = |name: String| match told.get(name.as_str()) {
            Some(&count) => count.clone(),
            None => TimeCount { name, ..TimeCount::default() },
        };
        self.names().into_iter().map(one).collect()
    }
}

/// The counts for a period.
struct Counted {
    stats: Stats,
    counts: Vec<TimeCount>,
}

impl Counted {
    fn new(period: Period, stats: Stats) -> Self {
        Self { counts: period.counts(&stats), stats }
    }

    fn bots(&self) -> u64 {
        self.counts.iter().map(|one| one.bots).sum()
    }

    /// Clicks by everybody else.
    fn people(&self) -> u64 {
        self.counts.iter().map(TimeCount::people).sum()
    }
}

/// A breakdown of the counts.
type Breakdown = fn(&Stats) -> &[Count];

/// A link's clicks in a period and, for a comparison, in the previous period.
pub(super) struct Clicks {
    period: Period,
    now: Counted,
    before: Option<Counted>,
}

impl Clicks {
    pub(super) async fn read(api: &Links<'_>, code: &str, fields: &Fields) -> Result<Self, Error> {
        let period = Period::of(fields);
        let counted = async |period: Period| {
            let (from, to) = period.dates();
            let (from, to) = (from.to_string(), to.to_string());
            let hours = if period.days <= BY_HOUR { "true" } else { "" };
            let asked = [("from", &*from), ("to", &*to), ("domain", fields.get("domain")), ("hours", hours)];
            Ok::<_, Error>(Counted::new(period, api.stats(Some(code), &asked).await?))
        };
        let before =
            async { if fields.has("compare") { counted(period.before()).await.map(Some) } else { Ok(None) } };
        let (now, before) = tokio::join!(counted(period), before);
        Ok(Self { period, now: now?, before: before? })
    }

    pub(super) fn show(&self, code: &str, domain: &str) -> Markup {
        let days = self.period.days;
        let compare = self.before.is_some();
        let of_csv =
            [("domain", domain), ("days", &*days.to_string()), ("compare", if compare { "on" } else { "" })];
        html! {
            section aria-labelledby="clicks" {
                h2 #clicks { "Clicks" }
                form.search method="get" action=(at(code, "", "")) {
                    input type="hidden" name="domain" value=(domain);
                    div.field {
                        label for="days" { "Days" }
                        select #days name="days" {
                            @for span in SPANS { option value=(span) selected[span == days] { "the last " (words(span)) } }
                        }
                    }
                    label.tick { input type="checkbox" name="compare" checked[compare]; " Compare with as many before" }
                    button { "Show" }
                    a.button href={ (at(code, "", "/clicks.csv")) "?" (query(&of_csv)) } download { "CSV" }
                }
                (self.summary())
                (self.by_time())
                @if !self.period.is_by_hour() && days <= BY_HOUR { (by_hour(&self.now.stats.hours)) }
                (self.ranks())
            }
        }
    }

    fn summary(&self) -> Markup {
        let Self { period, now, before } = self;
        let (from, to) = period.dates();
        html! {
            p {
                strong { (text::number(now.people() as usize, "click", "clicks")) }
                @if period.is_by_hour() { " in the last 24 hours" } @else { " from " (from) " to " (to) }
                @if now.bots() > 0 { ", and " (text::grouped(now.bots())) " by known bots" }
                @if let Some(before) = before {
                    "; " (text::grouped(before.people())) " in the " (words(period.days)) " before" (change(now.people(), before.people()))
                    @if before.bots() > 0 { ", and " (text::grouped(before.bots())) " by known bots" }
                }
                @if let Some(older) = &now.stats.older { span.hint { "; " (text::grouped(older.clicks)) " from " (older.from) " to " (older.to) " are not told apart by day any more" } }
            }
        }
    }

    fn by_time(&self) -> Markup {
        let Self { period, now, before } = self;
        let each =
            |of: fn(&TimeCount) -> u64, counted: &Counted| counted.counts.iter().map(of).collect::<Vec<_>>();
        let end = if period.is_by_hour() { ":00Z" } else { "" };
        let series = json!({
            "hours": period.is_by_hour(),
            "times": now.counts.iter().map(|one| format!("{}{end}", one.name)).collect::<Vec<_>>(),
            "clicks": each(TimeCount::people, now),
            "bots": each(|one| one.bots, now),
            "before": before.as_ref().map(|before| each(TimeCount::people, before)),
        });
        let (unit, column) = if period.is_by_hour() { ("hour", "Hour (UTC)") } else { ("day", "Day") };
        html! {
            link rel="stylesheet" href=(assets::path("uplot.css"));
            script src=(assets::path("uplot.js")) defer {}
            div.chart data-series=(series) role="img" aria-label={ "Clicks by " (unit) "; the table below has the same figures" } hidden {}
            details {
                summary { "By " (unit) }
                div.scroll tabindex="0" role="region" aria-label={ "Clicks by " (unit) } {
                    table {
                        thead { tr {
                            th scope="col" { (column) } th.number scope="col" { "Clicks" } th.number scope="col" { "By bots" }
                            @if before.is_some() { th.number scope="col" { "Before" } th.number scope="col" { "By bots" } }
                        } }
                        tbody {
                            @for (index, one) in now.counts.iter().enumerate().rev() {
                                tr {
                                    th scope="row" { (time(&one.name)) } (figures(one))
                                    @if let Some(before) = before { (figures(&before.counts[index])) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn ranks(&self) -> Markup {
        let stats = &self.now.stats;
        let (from, to) = self.period.dates();
        html! {
            @if self.period.is_by_hour() {
                p.hint { "By host, kind and country clicks are told apart by day: these are from " (from) " to " (to) "." }
            }
            div.two {
                (ranks("Referrers", "Host", &stats.referrers, stats.clicks, "direct"))
                (ranks("Agents", "Kind", &stats.agents, stats.clicks, "unknown"))
                @if !stats.countries.is_empty() {
                    (ranks("Countries", "Country", &stats.countries, stats.clicks, "unknown"))
                }
            }
        }
    }

    /// All counts, next to those of the previous period. Each day is compared with the day one period earlier.
    pub(super) fn rows(&self) -> String {
        let Self { period, now, before } = self;
        let mut rows = "kind,name,clicks,bots".to_owned();
        rows.push_str(if before.is_some() { ",before,bots_before\r\n" } else { "\r\n" });
        let number = |figure: Option<u64>| figure.map_or_else(String::new, |figure| figure.to_string());
        let mut row = |kind: &str, name: &str, now: [Option<u64>; 2], earlier: [Option<u64>; 2]| {
            let figures = now.into_iter().chain(earlier.into_iter().filter(|_| before.is_some()));
            let figures: Vec<String> = figures.map(number).collect();
            rows.push_str(&format!("{kind},{},{}\r\n", cell(name), figures.join(",")));
        };
        let both = |one: &TimeCount| [Some(one.clicks), Some(one.bots)];
        let unit = if period.is_by_hour() { "hour" } else { "day" };
        for (index, one) in now.counts.iter().enumerate() {
            let earlier = before.as_ref().map_or([None; 2], |before| both(&before.counts[index]));
            row(unit, &one.name, both(one), earlier);
        }
        if !period.is_by_hour() {
            now.stats.hours.iter().for_each(|one| row("hour", &one.name, both(one), [None; 2]));
        }
        let kinds: [(&str, Breakdown); 3] = [
            ("referrer", |stats| &stats.referrers),
            ("agent", |stats| &stats.agents),
            ("country", |stats| &stats.countries),
        ];
        for (kind, of) in kinds {
            let earlier = before.as_ref().map_or(&[][..], |before| of(&before.stats));
            let found = |counts: &[Count], name: &str| {
                counts.iter().find(|count| count.name == name).map_or(0, |count| count.clicks)
            };
            for Count { name, clicks } in of(&now.stats) {
                row(kind, name, [Some(*clicks), None], [Some(found(earlier, name)), None]);
            }
            // Names that occur only in the previous period.
            for Count { name, clicks } in earlier {
                if !of(&now.stats).iter().any(|now| now.name == *name) {
                    row(kind, name, [Some(0), None], [Some(*clicks), None]);
                }
            }
        }
        rows
    }
}

/// `24 hours`, `7 days`.
fn words(days: i64) -> String {
    if days == 1 { "24 hours".to_owned() } else { format!("{days} days") }
}

/// An hour as `2030-01-31 05:00`; a day stays unchanged.
fn time(name: &str) -> String {
    name.split_once('T').map_or_else(|| name.to_owned(), |(day, hour)| format!("{day} {hour}:00"))
}

/// Clicks by people, and by bots.
fn figures(one: &TimeCount) -> Markup {
    html! { td.number { (text::grouped(one.people())) } td.number { (text::grouped(one.bots)) } }
}

/// The hours that had clicks.
fn by_hour(hours: &[TimeCount]) -> Markup {
    html! {
        details {
            summary { "By hour" }
            @if hours.is_empty() { p.hint { "None in these days." } }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Clicks by hour" {
                    table {
                        thead { tr { th scope="col" { "Hour (UTC)" } th.number scope="col" { "Clicks" } th.number scope="col" { "By bots" } } }
                        tbody { @for one in hours.iter().rev() { tr { th scope="row" { (time(&one.name)) } (figures(one)) } } }
                    }
                }
            }
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

/// Names and their counts, highest first.
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

/// A name as a CSV cell (RFC 4180). Visitors choose referrers, so spreadsheets must not treat it as a formula.
fn cell(name: &str) -> String {
    let formula = name.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let name = if formula { format!("'{name}") } else { name.to_owned() };
    if name.contains([',', '"', '\r', '\n']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, clicks: u64) -> Count {
        Count { name: name.into(), clicks }
    }

    fn at_time(name: &str, clicks: u64, bots: u64) -> TimeCount {
        TimeCount { name: name.into(), clicks, bots }
    }

    fn period(days: i64) -> Period {
        Period { days, last: DateTime::constant(2030, 2, 1, 1, 30, 0, 0) }
    }

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
        let week = period(7);
        let now = Stats {
            days: vec![at_time("2030-02-01", 4, 1)],
            hours: vec![at_time("2030-02-01T00", 4, 1)],
            referrers: vec![count("a.example", 3), count("=b", 1)],
            agents: vec![count("firefox", 3), count("bot", 1)],
            countries: vec![count("DE", 4)],
            clicks: 4,
            older: None,
        };
        let before = Stats {
            days: vec![at_time("2030-01-24", 2, 0)],
            referrers: vec![count("a.example", 1), count("gone.example", 1)],
            agents: vec![count("firefox", 2)],
            clicks: 2,
            ..Stats::default()
        };
        let clicks = Clicks {
            period: week,
            now: Counted::new(week, now),
            before: Some(Counted::new(week.before(), before)),
        };
        let rows = clicks.rows();
        let rows: Vec<&str> = rows.split("\r\n").collect();
        assert_eq!(rows[..2], ["kind,name,clicks,bots,before,bots_before", "day,2030-01-26,0,0,0,0"]);
        let rest = [
            "day,2030-01-31,0,0,2,0",
            "day,2030-02-01,4,1,0,0",
            "hour,2030-02-01T00,4,1,,",
            "referrer,a.example,3,,1,",
            "referrer,'=b,1,,0,",
            "referrer,gone.example,0,,1,",
            "agent,firefox,3,,2,",
            "agent,bot,1,,0,",
            "country,DE,4,,0,",
            "",
        ];
        assert_eq!(rows[6..], rest);
        assert_eq!((clicks.now.people(), clicks.now.bots()), (3, 1));
        let page = clicks.show("abc", "").0;
        for shown in
            ["Countries", "<bdi>DE</bdi>", "3 clicks", "by known bots", "2030-02-01 00:00", "(+50 %)"]
        {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        let alone = Clicks { before: None, ..clicks };
        assert!(alone.rows().starts_with("kind,name,clicks,bots\r\nday,2030-01-26,0,0\r\n"));
    }

    #[test]
    fn hours_and_days_without_clicks_are_some_too() {
        let stats = Stats {
            days: vec![at_time("2030-01-31", 4, 1)],
            hours: vec![at_time("2030-01-31T02", 4, 1), at_time("2030-01-31T01", 9, 9)],
            ..Stats::default()
        };
        for (days, first, last, dates, clicks) in [
            (1, "2030-01-31T02", "2030-02-01T01", "2030-01-31 2030-02-01", 4),
            (7, "2030-01-26", "2030-02-01", "2030-01-26 2030-02-01", 4),
        ] {
            let period = period(days);
            let counts = period.counts(&stats);
            assert_eq!(counts.len(), if days == 1 { 24 } else { 7 });
            assert_eq!((&*counts[0].name, &*counts[counts.len() - 1].name), (first, last));
            assert_eq!(counts.iter().map(|one| one.clicks).sum::<u64>(), clicks);
            let (from, to) = period.dates();
            assert_eq!(format!("{from} {to}"), dates);
            let (before, now) = (period.before().names(), period.names());
            assert!(before.last() < now.first() && !now.contains(&before[0]), "{before:?} {now:?}");
        }
    }
}
