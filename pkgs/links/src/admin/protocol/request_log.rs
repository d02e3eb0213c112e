//! What a request leaves behind: its line of the access log, and its id in an answer that is an error.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage, web};
use service::access_log::{ConnectionInfo, LogEntry, RequestContext, RequestSummary};
use service::request_id::RequestId;

use super::failure::{Failure, ProblemBody};
use crate::admin::State;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Logs each request when its answer ends, where there is an access log.
pub(in crate::admin) async fn logged(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let state = request.app_data::<web::Data<State>>();
    let Some(lines) = state.and_then(|state| state.access_log.clone()) else {
        return Ok(next.call(request).await?.map_into_boxed_body());
    };
    let entry = lines.begin(&summary(&request), || connection(&request), RequestId::generate);
    if let Some(entry) = &entry {
        request.extensions_mut().insert(entry.context().clone());
    }
    let response = next.call(request).await;
    let Some(mut entry) = entry else { return response.map(ServiceResponse::map_into_boxed_body) };
    let response = response.inspect_err(|error| {
        entry.answered(error.as_response_error().status_code().as_u16());
    })?;
    entry.answered(response.status().as_u16());
    Ok(response.map_body(|_, body| BoxBody::new(Logged { body: BoxBody::new(body), entry })))
}

/// Tells of a request's id in an answer that is an error; a problem has it in its body too.
pub(in crate::admin) async fn told(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let known = request.extensions().get::<RequestContext>().map(|context| context.id().clone());
    let known = || known.unwrap_or_else(RequestId::generate);
    let mut response = match next.call(request).await {
        Ok(response) => response.map_into_boxed_body(),
        Err(error) => {
            return Err(match error.as_error::<Failure>() {
                Some(failure) => failure.clone().of_request(known()).into(),
                None => error,
            });
        }
    };
    if !response.status().is_client_error() && !response.status().is_server_error() {
        return Ok(response);
    }
    let id = known();
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let problem = response.response().extensions().get::<ProblemBody>().map(|told| told.json(&id));
    Ok(match problem {
        Some(json) => response.map_body(|_, _| BoxBody::new(json)),
        None => response,
    })
}

/// What a request asks, as it came.
fn summary(request: &ServiceRequest) -> RequestSummary<'_> {
    let fields: &HeaderMap = request.headers();
    let field = |name: HeaderName| fields.get(name).map(HeaderValue::as_bytes);
    RequestSummary {
        method: Some(request.method().as_str().as_bytes()),
        host: field(header::HOST),
        path: Some(request.uri().path().as_bytes()),
        agent: field(header::USER_AGENT),
        referrer: field(header::REFERER),
        trace: field(HeaderName::from_static("traceparent")),
    }
}

fn connection(request: &ServiceRequest) -> ConnectionInfo {
    let http = if request.version() == actix_web::http::Version::HTTP_10 { "1.0" } else { "1.1" };
    ConnectionInfo { client: request.peer_addr().map(|peer| peer.ip()), http, tls: None }
}

/// A body that is logged with its request.
struct Logged {
    body: BoxBody,
    entry: LogEntry,
}

impl MessageBody for Logged {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_next(context);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            this.entry.sent(piece.len() as u64);
        }
        polled
    }
}
