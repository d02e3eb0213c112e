//! actix-web's application as a service for the listener.
//!
//! An `App` is a service of actix's own requests, with http 0.2, and its futures stay on the thread that made them. So
//! each field of a request is copied to actix's types, and each field of the answer is copied back. Bodies are passed
//! on piece by piece without copying. A worker of the listener is one thread with one runtime, so the futures of its
//! thread may be awaited there. A [`SendWrapper`] checks that they stay on it.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_http::error::PayloadError;
use actix_http::{HttpMessage as _, Payload};
use actix_service::{Service as _, ServiceFactory as _, boxed, map_config};
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::web::Bytes;
use actix_web::{HttpResponse, ResponseError};
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use listener::{Body, BoxError, Peer};
use send_wrapper::SendWrapper;
use service::access_log::RequestContext;
use service::problem::Problem;

use super::budget::Held;
use super::failure::Failure;
use crate::admin::{self, State};
use crate::store::commented;

type App = boxed::BoxService<actix_http::Request, ServiceResponse<BoxBody>, actix_web::Error>;

thread_local! {
    /// The application of this worker. A task of the worker's runtime owns it, so it ends with the runtime. What
    /// actix-http keeps for the thread lasts until the thread ends.
    static APP: RefCell<Weak<App>> = const { RefCell::new(Weak::new()) };
}

/// The admin listener's service. Its clones share their state, and the clones on one thread share an application.
#[derive(Clone)]
pub(in crate::admin) struct Mounted {
    state: Arc<State>,
}

impl Mounted {
    pub(in crate::admin) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// The application of this thread. The first request makes it.
    async fn app(&self) -> Result<Rc<App>, BoxError> {
        if let Some(app) = APP.with_borrow(Weak::upgrade) {
            return Ok(app);
        }
        let factory = map_config(admin::app(Arc::clone(&self.state)), |()| AppConfig::default());
        let app = factory.new_service(()).await.map_err(|()| "the admin listener has no application")?;
        let app = Rc::new(boxed::service(app));
        APP.set(Rc::downgrade(&app));
        let kept = SendWrapper::new(Rc::clone(&app));
        tokio::spawn(async move {
            let _kept = kept;
            pending::<()>().await;
        });
        Ok(app)
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Sent>, BoxError> {
        let app = self.app().await?;
        let response = match translate(request) {
            Ok(request) => {
                poll_fn(|context| app.poll_ready(context)).await.map_err(told)?;
                match app.call(request).await {
                    Ok(response) => response.into_parts().1,
                    Err(error) => error.error_response(),
                }
            }
            Err(failure) => failure.error_response(),
        };
        Ok(translate_back(response))
    }
}

impl tower_service::Service<Request<Body>> for Mounted {
    type Response = Response<Sent>;
    type Error = BoxError;
    type Future = SendWrapper<Pin<Box<dyn Future<Output = Result<Response<Sent>, BoxError>>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let trace = self.state.store.trace(request.extensions(), request.headers());
        let is_safe = request.method().is_safe();
        let answer = commented(trace, self.clone().answer(request));
        if is_safe {
            return SendWrapper::new(Box::pin(answer));
        }
        // The listener drops the future that is returned here when the client leaves. The write may be committed all
        // the same, so a task takes it to its line in the audit log.
        let running = self.state.writes.subscribe();
        let task = tokio::spawn(SendWrapper::new(async move {
            let _running = running;
            answer.await
        }));
        SendWrapper::new(Box::pin(async move {
            task.await.unwrap_or_else(|ended| match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(cancelled) => Err(cancelled.into()),
            })
        }))
    }
}

/// Converts an error of actix, which cannot leave its thread, to its text.
fn told(error: impl std::fmt::Display) -> BoxError {
    error.to_string().into()
}

/// Converts a request to actix-web's types.
///
/// # Errors
/// 400 if only one of the two libraries accepts it.
fn translate(request: Request<Body>) -> Result<actix_http::Request, Failure> {
    let (parts, body) = request.into_parts();
    let payload = if body.is_end_stream() { Payload::None } else { payload(body) };
    let mut translated = actix_http::Request::with_payload(payload);
    if let Some(context) = parts.extensions.get::<RequestContext>() {
        translated.extensions_mut().insert(context.clone());
    }
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let malformed = |what: &str| Problem::bad_request(format!("the request's {what} is malformed"));
    let head = translated.head_mut();
    head.method = parts.method.as_str().parse().map_err(|_| malformed("method"))?;
    head.uri = target.parse().map_err(|_| malformed("target"))?;
    head.version = match parts.version {
        Version::HTTP_10 => actix_web::http::Version::HTTP_10,
        Version::HTTP_2 => actix_web::http::Version::HTTP_2,
        _ => actix_web::http::Version::HTTP_11,
    };
    head.peer_addr = parts.extensions.get::<Peer>().and_then(|peer| peer.remote);
    for (name, value) in fields(&parts.headers, &parts.uri) {
        let name = actix_web::http::header::HeaderName::from_bytes(name.as_str().as_bytes());
        let value = actix_web::http::header::HeaderValue::from_bytes(value);
        let (Ok(name), Ok(value)) = (name, value) else { return Err(malformed("head").into()) };
        head.headers.append(name, value);
    }
    Ok(translated)
}

/// The fields of a request. If the target has the host, as in HTTP/2, no field has it (RFC 9113, section 8.3.1).
fn fields<'a>(fields: &'a HeaderMap, uri: &'a Uri) -> impl Iterator<Item = (&'a HeaderName, &'a [u8])> {
    let host = uri.authority().map(|authority| (&header::HOST, authority.as_str().as_bytes()));
    let told = host.is_some();
    let fields = fields.iter().map(|(name, value)| (name, value.as_bytes()));
    fields.filter(move |(name, _)| !told || *name != header::HOST).chain(host)
}

/// Converts a body. Its trailers are dropped, since nothing uses them here.
fn payload(mut body: Body) -> Payload {
    let pieces = stream::poll_fn(move |context| {
        loop {
            let frame = ready!(Pin::new(&mut body).poll_frame(context));
            return Poll::Ready(match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => Some(Ok(piece)),
                Some(Ok(Err(_))) => continue,
                Some(Err(error)) => Some(Err(PayloadError::Io(io::Error::other(error)))),
                None => None,
            });
        }
    });
    Payload::Stream { payload: Box::pin(pieces) }
}

/// Converts an answer to the listener's types. The listener does HTTP/1.1's framing itself.
fn translate_back(mut response: HttpResponse) -> Response<Sent> {
    let mut translated = Response::new(());
    *translated.status_mut() =
        StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = translated.headers_mut();
    for (name, value) in response.headers() {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        translated.extensions_mut().insert(problem);
    }
    let held = response.extensions_mut().remove::<Held>();
    translated.map(|()| Sent::new(response.into_body(), held))
}

/// The body of an answer.
pub(in crate::admin) struct Sent {
    body: SendWrapper<BoxBody>,
    /// The remaining bytes, if known.
    left: Option<u64>,
    /// The room of a large one.
    held: Option<Arc<Held>>,
}

/// A piece of a large answer. By HTTP/2 the listener drops the body once its last piece is queued, and any slice of
/// that keeps all of its bytes, so the room belongs to the bytes.
struct Kept {
    bytes: Bytes,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Sent {
    fn new(body: BoxBody, held: Option<Held>) -> Self {
        let left = match body.size() {
            BodySize::None => Some(0),
            BodySize::Sized(bytes) => Some(bytes),
            BodySize::Stream => None,
        };
        Self { body: SendWrapper::new(body), left, held: held.map(Arc::new) }
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(piece) = ready!(Pin::new(&mut *self.body).poll_next(context)) else {
            return Poll::Ready(None);
        };
        let piece = piece.map_err(told)?;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(piece.len() as u64);
        }
        let piece = match &self.held {
            Some(held) => Bytes::from_owner(Kept { bytes: piece, _held: Arc::clone(held) }),
            None => piece,
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::admin::protocol::budget::AnswerBudget;

    #[test]
    fn a_large_answer_has_its_room_as_long_as_any_slice_of_it_is_kept() {
        let budget = AnswerBudget::new(100);
        let mut response = HttpResponse::Ok().body(vec![b'x'; 100]);
        response.extensions_mut().insert(budget.hold(1, 100, false).expect("room"));
        let mut sent = translate_back(response).into_body();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut sent).poll_frame(&mut context) else {
            panic!("it is ready");
        };
        let mut piece = frame.into_data().expect("it is data");
        assert!(sent.is_end_stream());
        drop(sent);
        let last = piece.split_off(90);
        drop(piece);
        assert_eq!(last, "xxxxxxxxxx");
        assert!(budget.hold(2, 1, false).is_none(), "it is not sent yet");
        drop(last);
        assert!(budget.hold(2, 1, false).is_some());
    }
}
