//! Services behind a pointer.
//!
//! The code of a connection (HTTP/1.1, 2 and 3, with TLS and without) is compiled for each type of service, in the
//! crate that names the type. Rarely used services all have this type, which is compiled once, in this crate, for all
//! programs.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};

use super::{BoxError, HttpService};
use crate::body::Body;

/// Any service.
pub struct BoxedService(Box<dyn Service>);

impl BoxedService {
    /// Boxes this service.
    pub fn new(service: impl HttpService) -> Self {
        Self(Box::new(service))
    }
}

impl Clone for BoxedService {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl tower_service::Service<Request<Body>> for BoxedService {
    type Response = Response<BoxedBody>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        self.0.answer(request)
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<BoxedBody>, BoxError>> + Send>>;

/// The methods of an [`HttpService`], independent of its types.
trait Service: Send {
    fn copy(&self) -> Box<dyn Service>;
    fn ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>>;
    fn answer(&mut self, request: Request<Body>) -> Answer;
}

impl<S: HttpService> Service for S {
    fn copy(&self) -> Box<dyn Service> {
        Box::new(self.clone())
    }

    fn ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.poll_ready(context).map_err(Into::into)
    }

    fn answer(&mut self, request: Request<Body>) -> Answer {
        let answer = self.call(request);
        Box::pin(async move {
            let response = answer.await.map_err(Into::into)?;
            Ok(response.map(|body| BoxedBody(Box::pin(body))))
        })
    }
}

/// Any body.
pub struct BoxedBody(Pin<Box<dyn ResponseBody>>);

/// The methods of a response's body, independent of its types.
trait ResponseBody: Send {
    fn frame(self: Pin<&mut Self>, context: &mut Context<'_>)
    -> Poll<Option<Result<Frame<Bytes>, BoxError>>>;
    fn is_over(&self) -> bool;
    fn hint(&self) -> SizeHint;
}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send> ResponseBody for B {
    fn frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.poll_frame(context).map_err(Into::into)
    }

    fn is_over(&self) -> bool {
        self.is_end_stream()
    }

    fn hint(&self) -> SizeHint {
        self.size_hint()
    }
}

impl http_body::Body for BoxedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.hint()
    }
}
