//! Parts of pages that update by themselves. They get a server-sent event (HTML, section 9.2) each second as long as
//! the page is open and its user is signed in.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderValue};
use maud::{Markup, html};
use tokio::time::sleep;

use super::operation;
use crate::app::App;
use crate::live::Full;
use crate::visitor::Visitor;

/// The time between updates.
const TICK: Duration = Duration::from_secs(1);

/// How long a page stays live without being loaded again. Nobody watches a page that was left open overnight.
const LIFE: Duration = Duration::from_secs(3600);

/// The event that tells browsers not to connect again. They would do so if the stream simply ended.
pub(super) const OVER: &str = "over";

const END: &str = "event: over\ndata: \n\n";

/// One update, and whether more will follow.
pub(super) struct Told {
    pub(super) figures: Markup,
    pub(super) goes_on: bool,
}

impl From<Markup> for Told {
    fn from(figures: Markup) -> Self {
        Self { figures, goes_on: true }
    }
}

/// Sends the results of `render` as events with this name, until it says that no more follow.
pub(super) fn events<F>(
    app: &Arc<App>,
    visitor: Visitor,
    name: &'static str,
    render: impl Fn(Arc<App>) -> F + Send + 'static,
) -> Response
where
    F: Future<Output: Into<Told>> + Send + 'static,
{
    let place = match app.live.take(&visitor.cookie) {
        Ok(place) => place,
        // With an error status, the page would stay unchanged, and nobody would know that it no longer updates.
        Err(full) => {
            let figures = render(Arc::clone(app));
            let once = stream::once(async move {
                let figures: Told = figures.await.into();
                let figures = html! { (over(rests(full), "", "Try again")) (figures.figures) };
                Ok::<_, Infallible>(Bytes::from(event(name, &figures) + END))
            });
            return stream_of(Body::from_stream(once));
        }
    };
    let begun = Instant::now();
    let state = (Arc::clone(app), visitor, render, place, Some(true));
    let events = stream::unfold(state, move |(app, visitor, render, place, goes_on)| async move {
        let first = goes_on?;
        if !first {
            tokio::select! {
                () = sleep(TICK) => {}
                () = app.shutdown.wait() => return None,
            }
        }
        let signed_in = app.open.is_some()
            || !operation::is_over(&app, &visitor).await
                && app.sessions.grant(&visitor.cookie, false, Instant::now()).is_some();
        let (markup, goes_on) = if !signed_in {
            (over("You are signed out.", "/sign-in", "Sign in"), None)
        } else if begun.elapsed() > LIFE {
            (over("This page has been live for an hour, and rests.", "", "Go on"), None)
        } else {
            let told: Told = render(Arc::clone(&app)).await.into();
            (told.figures, told.goes_on.then_some(false))
        };
        let mut bytes = event(name, &markup);
        if goes_on.is_none() {
            bytes.push_str(END);
        }
        Some((Ok::<_, Infallible>(Bytes::from(bytes)), (app, visitor, render, place, goes_on)))
    });
    stream_of(Body::from_stream(events))
}

/// The answer to a live page whose visitor has no session any more: one event that says so, and the end. Each path has
/// the name of its page's events. None if there is no such page.
pub(crate) fn signed_out(path: &str) -> Option<Response> {
    let asked = path.strip_prefix("/live/")?.split('/').next()?;
    let name = ["overview", "queues", "import"].into_iter().find(|name| *name == asked)?;
    let markup = over("You are signed out.", "/sign-in", "Sign in");
    Some(stream_of(Body::from(event(name, &markup) + END)))
}

/// Why a page doesn't update.
fn rests(full: Full) -> &'static str {
    match full {
        Full::Own => "This page rests: you have as many live pages open as one may have. Close one, and",
        Full::All => "This page rests: as many people look at live pages as this console has room for.",
    }
}

fn stream_of(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// The message in place of the figures after the last update.
fn over(why: &str, place: &str, what: &str) -> Markup {
    html! { p.alert role="alert" { (why) " " a href=(place) { (what) } } }
}

/// Formats an event. Each of its lines starts with `data:`; a carriage return ends a line too.
fn event(name: &str, markup: &Markup) -> String {
    let mut text = format!("event: {name}\n");
    for line in markup.0.split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_an_event_is_taken_for_another_field() {
        let markup = html! { p { "a\nevent: b\n\r\nid: 1" } };
        let text = event("overview", &markup);
        let lines: Vec<&str> = text.lines().collect();
        let others = ["data: <p>a", "data: event: b", "data: ", "data: ", "data: id: 1</p>", ""];
        assert_eq!((lines[0], &lines[1..]), ("event: overview", &others[..]));
        assert!(!text.contains('\r'), "{text:?}");
        assert!(END.starts_with(&format!("event: {OVER}\n")) && END.ends_with("\n\n"));
    }
}
