//! Writes from audit logs.

use std::io;

use maud::{Markup, html};

use super::text;
use crate::audit::{AuditFile, Found, SHOWN, Wanted};

/// A table of the newest matching writes, or why the log can't be read.
pub(super) async fn of(file: &AuditFile, wanted: Wanted) -> Markup {
    match file.newest(wanted).await {
        Ok(found) => table(file, &found),
        Err(error) => unread(file, &error),
    }
}

/// The text for users who may not see the log.
pub(super) fn withheld() -> Markup {
    html! { p.hint { "It is for those whose key of linerate-links may write, at all domains: it names everybody." } }
}

fn unread(file: &AuditFile, error: &io::Error) -> Markup {
    html! { p.alert role="alert" { (file.path.display()) ": " (error) } }
}

fn table(file: &AuditFile, found: &Found) -> Markup {
    let label = format!("Audit log of {}", file.service);
    html! {
        @if found.lines.is_empty() {
            p.empty { "No write is found" @if found.more { " in the end of the log that is looked through" } "." }
        } @else {
            table.cards aria-label=(label) {
                thead { tr {
                    th scope="col" { "When" } th scope="col" { "What" } th scope="col" { "To" } th scope="col" { "Key" } th scope="col" { "From" }
                    th scope="col" { "Request" }
                } }
                tbody { @for line in &found.lines { tr {
                    td.word data-label="When" { (text::instant(&line.time)) }
                    th.word scope="row" { (line.action) @if line.count > 1 { " × " (text::grouped(line.count)) } }
                    td data-label="To" { @if let Some(target) = &line.target { bdi { (target) } } }
                    td data-label="Key" { @if let Some(key) = line.key { (key) } @if let Some(name) = &line.name { " " bdi { (name) } } }
                    td.word data-label="From" { @if let Some(client) = &line.client { (client) } }
                    td data-label="Request" { bdi.hint { (line.id) } }
                } } }
            }
            @if found.more { p.hint { "The newest, " (SHOWN) " at most; " code { (file.path.display()) } " has all of them." } }
        }
    }
}
