//! Doctor: what keeps the machine from reaching its line rate.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::{Screen, page as shown, text};
use crate::app::App;
use crate::fields::Fields;
use crate::machine::{Examined, Finding, Severity};
use crate::visitor::Visitor;

/// If the last findings are older than this, the doctor checks again while the page shows the old ones.
const LATELY: Duration = Duration::from_secs(10);

/// How many resolved findings are shown.
const PAST: usize = 50;

pub(crate) async fn page(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    // A visitor who requests a new check waits for it. Otherwise the page shows the last findings. If there are none
    // yet, everybody waits.
    let last = if fields.has("again") { None } else { app.doctor_lately(LATELY) };
    let found = match last {
        Some(found) => found,
        None => app.doctor(Duration::from_millis(500)).await,
    };
    let content = html! {
        div.heading {
            h1 { "Doctor" }
            p.hint { "looked " (text::span(found.0.elapsed().as_secs())) " ago" }
            a.button href="/doctor?again=yes" { "Look again" }
        }
        @match &found.1 {
            Err(why) => p.alert role="alert" { "Doctor cannot say: " (why) },
            Ok(examined) => (report(examined)),
        }
    };
    shown(StatusCode::OK, (&app, &visitor), (Screen::Doctor, "Doctor"), content)
}

fn report(examined: &Examined) -> Markup {
    let idle = examined.rules.iter().filter(|rule| !rule.looked).count();
    let denied = examined.rules.iter().filter(|rule| rule.denied.is_some()).count();
    html! {
        (summary(examined))
        @if !examined.findings.is_empty() {
            ul.findings { @for one in &examined.findings { (finding(one, examined.at)) } }
        }
        (past(examined))
        h2 { "Rules" }
        @if idle > 0 {
            p.hint {
                (text::number(idle, "rule", "rules")) " had nothing to compare the machine with: "
                @match &examined.profile {
                    Some(_) => "the profile has nothing of it.",
                    None => { "this console was started without a profile (" code { "--profile" } ")." },
                }
            }
        }
        @if denied > 0 {
            p.hint {
                (text::number(denied, "rule", "rules")) " could not see everything, which the console's user may not; root sees it: "
                code { "sudo linerate doctor" }
            }
        }
        div.scroll tabindex="0" role="region" aria-label="Rules" {
            table {
                thead { tr { th scope="col" { "Rule" } th scope="col" { "Looks whether" } th scope="col" { "Found" } th scope="col" { "Source" } } }
                tbody {
                    @for rule in &examined.rules {
                        @let count = examined.findings.iter().filter(|finding| finding.rule == rule.name).count();
                        tr {
                            th scope="row" { (rule.name) }
                            td { (rule.about) }
                            td {
                                @if !rule.looked { span.hint { "not looked: nothing to compare with" } }
                                @else if count > 0 { (text::number(count, "finding", "findings")) }
                                @else if rule.denied.is_none() { span.badge.good { "well" } }
                                @else { span.hint { "nothing" } }
                                @if let Some(what) = &rule.denied { br; span.hint { "not all was seen: this console may not read " bdi { (what) } } }
                            }
                            td.hint { (rule.source) }
                        }
                    }
                }
            }
        }
    }
}

/// Findings that have been resolved since boot.
fn past(examined: &Examined) -> Markup {
    let ago = |at: u64| text::span(examined.at.saturating_sub(at));
    html! {
        @if !examined.past.is_empty() {
            h2 { "Well again" }
            table.cards aria-label="Well again" {
                thead { tr {
                    th scope="col" { "What" } th scope="col" { "Rule" } th scope="col" { "Well for" } th scope="col" { "Lasted" }
                    th.number scope="col" { "Times" }
                } }
                tbody { @for one in examined.past.iter().take(PAST) { tr {
                    th.long scope="row" { bdi { (one.subject) } }
                    td data-label="Rule" { (one.rule) }
                    td data-label="Well for" { (ago(one.ended)) }
                    td data-label="Lasted" { (text::span(one.ended.saturating_sub(one.begun))) }
                    td.number data-label="Times" { (one.times) }
                } } }
            }
        }
    }
}

/// One line with the number of findings.
pub(super) fn summary(examined: &Examined) -> Markup {
    let looked = examined.rules.iter().filter(|rule| rule.looked).count();
    let of = |severity| examined.findings.iter().filter(|finding| finding.severity == severity).count();
    let counts = [
        (Severity::Critical, text::number(of(Severity::Critical), "critical", "critical")),
        (Severity::Warning, text::number(of(Severity::Warning), "warning", "warnings")),
        (Severity::Notice, text::number(of(Severity::Notice), "notice", "notices")),
    ];
    html! {
        p.summary {
            @if examined.findings.is_empty() {
                span.badge.good { "nothing found" }
            } @else {
                @for (severity, words) in counts {
                    @if of(severity) > 0 { span class={ "badge " (severity.label()) } { (words) } " " }
                }
            }
            span.hint { " " (looked) " of " (examined.rules.len()) " rules looked" }
            @if let Some(host) = &examined.profile { span.hint { ", by the profile of " (host) } }
        }
    }
}

/// One finding.
pub(super) fn finding(finding: &Finding, at: u64) -> Markup {
    html! {
        li {
            p.what {
                span class={ "badge " (finding.severity.label()) } { (finding.severity) }
                " " strong { (finding.subject) } " " span.hint { (finding.rule) }
                @if let Some(effect) = finding.effect { span.hint { ", " (text::percent(effect)) " of the work" } }
                @if let Some(since) = finding.since.map(|since| at.saturating_sub(since)).filter(|since| *since > 0) {
                    span.hint { ", for " (text::span(since)) " now" }
                }
                @if let Some(times) = finding.times.filter(|times| *times > 1) { span.hint { ", time " (times) " of it" } }
            }
            dl.pairs {
                div { dt { "is" } dd { (finding.found) } }
                @if let Some(expected) = &finding.expected { div { dt { "should be" } dd { (expected) } } }
                div { dt { "costs" } dd { (finding.cost) } }
                @if let Some(remedy) = &finding.remedy { div { dt { "mend" } dd { code { (remedy) } } } }
            }
        }
    }
}
