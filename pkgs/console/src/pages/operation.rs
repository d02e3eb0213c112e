//! Actions for users who may write everything, each of which is logged, and the checks of who may.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use maud::html;
use service::access_log::{Actor, AuditRecord};
use tokio::time::timeout;

use super::{Screen, failed, links, page};
use crate::app::App;
use crate::session::Grant;
use crate::upstream;
use crate::visitor::Visitor;

/// How long a page waits to learn whether its visitor is still signed in. links answers within milliseconds.
const SIGNED_IN: Duration = Duration::from_secs(2);

/// Whether a session has ended because links no longer accepts its key or token. While links doesn't answer, sessions
/// go on, since most of what the pages show comes from elsewhere.
pub(crate) async fn is_over(app: &App, visitor: &Visitor) -> bool {
    let Some(grant) = visitor.grant.as_ref().filter(|_| visitor.session) else { return false };
    let refused = match timeout(SIGNED_IN, may_see_all(app, visitor)).await {
        Ok(Err(upstream::Error::Refused(problem))) => problem.status == StatusCode::UNAUTHORIZED,
        _ => false,
    };
    if refused {
        app.sessions.end_refused(grant);
    }
    refused
}

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
    // It is sent as a header, which may not have line breaks; the issuer decides what is in it.
    let name: String = grant.name().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use service::request_id::RequestId;

    use super::*;
    use crate::session::User;

    #[test]
    fn every_name_can_be_sent_to_the_writer() {
        for (name, expected) in [
            ("Jürgen", "user Jürgen by a Unix socket"),
            ("Jür\r\nx: y\u{85}gen\u{7f}", "user Jürx: ygen by a Unix socket"),
        ] {
            let user = Some(User { id: "1".into(), name: name.into() });
            let visitor = Visitor {
                grant: Some(Grant { user, ..Grant::default() }),
                cookie: String::new(),
                form: String::new(),
                session: true,
                secure: false,
                address: None,
                request: RequestId::generate(),
            };
            assert_eq!(by(&visitor), expected);
            assert!(HeaderValue::from_str(expected).is_ok(), "{expected}");
        }
    }
}
