//! Clients of HTTP/2 and HTTP/3 that send a body once they are told to continue (RFC 9110, section 10.1.1).

use std::future::pending;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode, header};
use tokio::sync::Notify;

/// Whether a request's client waits to be told to continue. Clones are about the same request: one is for the body, and
/// one for who tells the client.
#[derive(Clone, Debug)]
pub struct Expectation(Option<Arc<Notify>>);

impl Expectation {
    /// The expectation in these fields, which can be no other.
    pub fn of(fields: &HeaderMap) -> Self {
        Self(fields.contains_key(header::EXPECT).then(Arc::default))
    }

    /// The service has asked for the body, and has to wait for it if it is pending. Only the first time counts, since a
    /// client that has sent something did not wait.
    pub fn asked(&mut self, is_pending: bool) {
        if let Some(due) = self.0.take()
            && is_pending
        {
            due.notify_one();
        }
    }

    /// Waits until the client has to be told, for ever if it does not wait.
    pub async fn due(&self) {
        match &self.0 {
            Some(due) => due.notified().await,
            None => pending().await,
        }
    }

    /// What the client is told.
    pub fn answer() -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        response
    }
}
