//! Actions for users who may write everything. Each is logged.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use maud::html;
use service::access_log::{Actor, AuditRecord};

use super::{Screen, failed, links, page};
use crate::app::App;
use crate::session::Grant;
use crate::upstream;
use crate::visitor::Visitor;

/// Refuses visitors who may not write to all domains.
pub(super) async fn allowed(app: &App, visitor: &Visitor, screen: (Screen, &str)) -> Result<(), Response> {
    match may_see_all(app, visitor).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let content = html! {
                h1 { "Not allowed" }
                p.alert role="alert" { "That is for keys of linerate-links that may write at all domains." }
            };
            Err(page(StatusCode::FORBIDDEN, (app, visitor), screen, content))
        }
        Err(error) => Err(failed((app, visitor), screen, &error)),
    }
}

/// Whether a visitor may see and change what concerns the whole machine.
pub(super) async fn may_see_all(app: &App, visitor: &Visitor) -> Result<bool, upstream::Error> {
    let links = links(app, visitor)?;
    app.may_all.of(links.token, links.may_all()).await
}

/// The visitor's name in the helper's log.
pub(super) fn by(visitor: &Visitor) -> String {
    let grant = visitor.grant.clone().unwrap_or_default();
    let kind = if grant.user.is_some() { "user" } else { "key" };
    let name = grant.name().unwrap_or_default();
    match visitor.address {
        Some(address) => format!("{kind} {name} from {address}"),
        None => format!("{kind} {name} by a Unix socket"),
    }
}

/// Logs an action and its outcome.
pub(super) async fn note(app: &Arc<App>, visitor: &Visitor, action: &str, target: &str, done: bool) {
    let who = by(visitor);
    tracing::info!(action, target, who, done, "asked for by the console");
    let Some(log) = &app.audit_log else { return };
    let name = visitor.grant.as_ref().and_then(Grant::name);
    let actor = Actor { key: None, name, client: visitor.address };
    let action = if done { action.to_owned() } else { format!("{action}.failed") };
    let record = AuditRecord {
        action: &action,
        target: Some(target),
        count: u64::from(done),
        ..AuditRecord::default()
    };
    log.write(&visitor.request, &actor, [record]).await;
}
