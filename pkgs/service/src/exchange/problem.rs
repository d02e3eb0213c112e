//! RFC 9457 error bodies.

use serde::{Deserialize, Serialize};

use crate::request_id::RequestId;

/// The media type of a [`Problem`].
pub const CONTENT_TYPE: &str = "application/problem+json";

/// An error of a request, for programs and people (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{title}: {detail}")]
pub struct Problem {
    /// A URI that names the kind of problem; `about:blank` if the status says everything.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// The kind of problem in a few words, always the same for a kind.
    pub title: String,
    /// The HTTP status code.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// The request's id, as in `X-Request-Id` and the access log, for reports to the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Each faulty part of the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// Additional members of this kind of problem (RFC 9457, section 3.2). They are written but not read.
    #[serde(flatten, skip_deserializing)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub extensions: serde_json::Map<String, serde_json::Value>,
}

/// A faulty part of a request's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fault {
    /// Its place: a JSON pointer (RFC 6901) into the body.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// A problem with the title of its HTTP `status` code.
    pub fn new(status: u16, detail: impl Into<String>) -> Self {
        Self {
            kind: about_blank(),
            title: title(status).to_owned(),
            status,
            detail: detail.into(),
            request_id: None,
            errors: Vec::new(),
            extensions: serde_json::Map::new(),
        }
    }

    /// Adds a faulty part of the body.
    #[must_use]
    pub fn with_error(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(Fault { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Adds a member with more detail. Leaves it out if it cannot be JSON.
    #[must_use]
    pub fn with_extension(mut self, name: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.extensions.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds the request's id.
    #[must_use]
    pub fn of_request(self, id: &RequestId) -> Self {
        Self { request_id: Some(id.as_str().to_owned()), ..self }
    }

    /// The body as JSON, for a response of [`CONTENT_TYPE`].
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, detail)
    }

    /// 401: the client is unknown.
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(401, detail)
    }

    /// 403: the client is known, but may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, detail)
    }

    /// 404: there is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, detail)
    }

    /// 409: the request conflicts with the current state.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(409, detail)
    }

    /// 413: the body is too long.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(413, detail)
    }

    /// 422: the request is understood, but not acceptable.
    pub fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(422, detail)
    }

    /// 500: a fault of the service.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(500, detail)
    }

    /// 503: not available now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(503, detail)
    }

    /// 507: no room to store the data.
    pub fn insufficient_storage(detail: impl Into<String>) -> Self {
        Self::new(507, detail)
    }
}

/// The reason phrase of a status code (RFC 9110 section 15, RFC 6585, RFC 4918), or its class.
fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        422 => "Unprocessable Content",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        507 => "Insufficient Storage",
        _ if status < 500 => "Client Error",
        _ => "Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn problems_are_written_and_read_as_rfc_9457_has_them() {
        let cases = [
            (
                Problem::not_found("no link has the code x"),
                json!({"type": "about:blank", "title": "Not Found", "status": 404,
                       "detail": "no link has the code x"}),
            ),
            (
                Problem::unprocessable("1 field is wrong").with_error("/target", "only http and https"),
                json!({"type": "about:blank", "title": "Unprocessable Content", "status": 422,
                       "detail": "1 field is wrong",
                       "errors": [{"pointer": "/target", "detail": "only http and https"}]}),
            ),
            (
                Problem { request_id: Some("r1".into()), ..Problem::new(599, "odd") },
                json!({"type": "about:blank", "title": "Server Error", "status": 599,
                       "detail": "odd", "request_id": "r1"}),
            ),
        ];
        for (problem, value) in cases {
            assert_eq!(to_value(&problem).expect("serializes"), value);
            assert_eq!(from_value::<Problem>(value).expect("deserializes"), problem);
        }
    }

    #[test]
    fn further_members_stand_beside_the_others() {
        let problem = Problem::bad_request("row 2").with_extension("tally", json!({"created": 1}));
        let id = RequestId::generate();
        let expected = json!({"type": "about:blank", "title": "Bad Request", "status": 400, "detail": "row 2",
            "request_id": id.as_str(), "tally": {"created": 1}});
        assert_eq!(to_value(problem.of_request(&id)).expect("serializes"), expected);
        let read: Problem = from_value(expected).expect("deserializes");
        assert_eq!(read, Problem::bad_request("row 2").of_request(&id));
    }

    #[test]
    fn a_problem_without_a_type_is_about_blank() {
        let problem: Problem =
            from_value(json!({"title": "Gone", "status": 410, "detail": "expired"})).expect("deserializes");
        assert_eq!(problem, Problem::new(410, "expired"));
    }
}
