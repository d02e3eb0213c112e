//! The answers of `/healthz` and `/readyz`, the same for every service.
//!
//! ```
//! use service::{health, ready::Readiness};
//!
//! let answer = health::ready(&Readiness::new());
//! assert_eq!(answer.status, 503);
//! // On a listener: service::admin::Admin serves it.
//! // With actix: HttpResponse::build(..), insert_header for each of answer.headers(), .body(answer.body); and the problem
//! // into the response's extensions.
//! ```

use std::borrow::Cow;

use crate::handover;
use crate::problem::{self, Problem};
use crate::ready::{Readiness, State};

/// The path of [`alive`].
pub const ALIVE_PATH: &str = "/healthz";
/// The path of [`ready`].
pub const READY_PATH: &str = "/readyz";
/// The media type of [`ALIVE`] and [`READY`].
pub const CONTENT_TYPE: &str = "application/json";
/// The body of 200 from `/healthz`.
pub const ALIVE: &str = r#"{"status":"ok"}"#;
/// The body of 200 from `/readyz`.
pub const READY: &str = r#"{"status":"ready"}"#;

/// The JSON form of [`ALIVE`] and [`READY`], for OpenAPI documents and clients.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok` from `/healthz`, `ready` from `/readyz`.
    pub status: String,
}

/// The answer to a health check, for any web framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200 or 503.
    pub status: u16,
    /// [`CONTENT_TYPE`]; with 503, [`problem::CONTENT_TYPE`].
    pub content_type: &'static str,
    /// The body, in JSON.
    pub body: Cow<'static, str>,
    /// The body as a problem. In a response's extensions, the listener adds the request's id to it.
    pub problem: Option<Problem>,
}

impl Answer {
    const fn ok(body: &'static str) -> Self {
        Self { status: 200, content_type: CONTENT_TYPE, body: Cow::Borrowed(body), problem: None }
    }

    /// 200 with this JSON.
    pub const fn json(body: String) -> Self {
        Self { status: 200, content_type: CONTENT_TYPE, body: Cow::Owned(body), problem: None }
    }

    /// A problem.
    pub fn problem(problem: Problem) -> Self {
        let body = problem.json().into();
        Self { status: problem.status, content_type: problem::CONTENT_TYPE, body, problem: Some(problem) }
    }

    /// The header fields of the answer, by lower-case name. No cache may keep it.
    pub fn headers(&self) -> [(&'static str, &'static str); 2] {
        [("content-type", self.content_type), ("cache-control", "no-store")]
    }
}

/// The answer of `/healthz`: 200 as long as the process answers at all.
pub const fn alive() -> Answer {
    Answer::ok(ALIVE)
}

/// The answer of `/readyz`: 200 if requests should be sent here, otherwise 503 with the reason.
///
/// A process that drains because [another](handover) has taken over answers 200: whoever asks it, on a connection from
/// before, means the address, where the other is ready.
pub fn ready(readiness: &Readiness) -> Answer {
    match readiness.state() {
        State::Ready => Answer::ok(READY),
        State::Stopping if handover::is_handed_over() => Answer::ok(READY),
        state => not_ready(state.to_string()),
    }
}

/// The answer of `/readyz` if requests should not be sent here, with the reason.
pub fn not_ready(why: impl Into<String>) -> Answer {
    Answer::problem(Problem::unavailable(why))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_str, json};

    use super::*;

    fn seen(answer: &Answer) -> (u16, &'static str, Value) {
        assert_eq!(answer.headers()[1], ("cache-control", "no-store"));
        (answer.status, answer.headers()[0].1, from_str(&answer.body).expect("JSON"))
    }

    #[test]
    fn who_answers_is_alive() {
        assert_eq!(seen(&alive()), (200, "application/json", json!({"status": "ok"})));
    }

    #[test]
    fn readiness_is_200_or_503_with_a_reason() {
        let readiness = Readiness::new();
        let problem = |detail: &str| {
            let body = json!({"type": "about:blank", "title": "Service Unavailable", "status": 503,
                "detail": detail});
            (503, "application/problem+json", body)
        };
        assert_eq!(seen(&ready(&readiness)), problem("starting"));
        readiness.set_ready();
        assert_eq!(seen(&ready(&readiness)), (200, "application/json", json!({"status": "ready"})));
        readiness.set_not_ready("the disk is \"full\"");
        assert_eq!(seen(&ready(&readiness)), problem("not ready: the disk is \"full\""));
        readiness.set_stopping();
        assert_eq!(seen(&ready(&readiness)), problem("stopping"));
    }

    #[test]
    fn clients_read_what_is_answered() {
        for (body, status) in [(ALIVE, "ok"), (READY, "ready")] {
            assert_eq!(from_str::<Health>(body).expect("JSON").status, status);
        }
    }
}
