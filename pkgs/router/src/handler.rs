//! What answers requests: functions, asynchronous or not, and services.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::uri::{PathAndQuery, Uri};
use http::{Request, Response, StatusCode};
use tower_service::Service;

use crate::answer::Answer;
use crate::extract::{FromParts, FromRequest};
use crate::matched::Matched;
use crate::response::IntoResponse;

/// A function that answers requests:
///
/// - `fn(args) -> T` and `async fn(args) -> T`, where each argument is [`FromParts`], the last perhaps
///   [`FromRequest`], and `T` is [`IntoResponse`];
/// - `fn(Request<B>, &Matched<'_>) -> T`.
///
/// `M` only tells these apart.
pub trait Handler<B, R, S, M>: Send + Sync + 'static {
    /// How many parameters it takes of its route, when it says so.
    const PARAMS: Option<usize>;

    /// Answers a request.
    fn call(&self, request: Request<B>, matched: &Matched<'_>, state: &S) -> Answer<R>;
}

/// Marks functions that return their answer.
#[derive(Debug)]
pub struct Returns<M>(PhantomData<M>);

/// Marks functions that return a future of it.
#[derive(Debug)]
pub struct Awaits<M>(PhantomData<M>);

/// Marks functions of the request and its match.
#[derive(Debug)]
pub enum Plain {}

impl<F, T, B, R, S> Handler<B, R, S, Plain> for F
where
    F: Fn(Request<B>, &Matched<'_>) -> T + Send + Sync + 'static,
    T: IntoResponse<R>,
{
    const PARAMS: Option<usize> = None;

    #[inline]
    fn call(&self, request: Request<B>, matched: &Matched<'_>, _: &S) -> Answer<R> {
        self(request, matched).into_response().into()
    }
}

impl<F, T, B, R, S> Handler<B, R, S, Returns<()>> for F
where
    F: Fn() -> T + Send + Sync + 'static,
    T: IntoResponse<R>,
{
    const PARAMS: Option<usize> = None;

    #[inline]
    fn call(&self, _: Request<B>, _: &Matched<'_>, _: &S) -> Answer<R> {
        self().into_response().into()
    }
}

impl<F, U, B, R, S> Handler<B, R, S, Awaits<()>> for F
where
    F: Fn() -> U + Send + Sync + 'static,
    U: Future + Send + 'static,
    U::Output: IntoResponse<R>,
    R: 'static,
{
    const PARAMS: Option<usize> = None;

    #[inline]
    fn call(&self, _: Request<B>, _: &Matched<'_>, _: &S) -> Answer<R> {
        let future = self();
        Answer::new(Responding { future, body: PhantomData })
    }
}

pin_project_lite::pin_project! {
    /// The future of what becomes a response. Not an async block, since that would move the response once
    /// more.
    struct Responding<U, R> {
        #[pin]
        future: U,
        body: PhantomData<fn() -> R>,
    }
}

impl<U, R> Future for Responding<U, R>
where
    U: Future,
    U::Output: IntoResponse<R>,
{
    type Output = Response<R>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<R>> {
        self.project().future.poll(cx).map(IntoResponse::into_response)
    }
}

/// What a rejected request is answered with, or the value.
macro_rules! or_reject {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(rejection) => return IntoResponse::<R>::into_response(rejection).into(),
        }
    };
}

/// Implements [`Handler`] for functions of so many arguments.
macro_rules! handlers {
    ($($part:ident),*; $last:ident) => {
        impl<Fun, T, B, R, S, M, $($part,)* $last> Handler<B, R, S, Returns<(M, $($part,)* $last)>> for Fun
        where
            Fun: Fn($($part,)* $last) -> T + Send + Sync + 'static,
            T: IntoResponse<R>,
            $($part: FromParts<B, S>, $part::Rejection: IntoResponse<R>,)*
            $last: FromRequest<B, S, M>,
            $last::Rejection: IntoResponse<R>,
        {
            const PARAMS: Option<usize> = most(&[$($part::PARAMS,)* $last::PARAMS]);

            #[inline]
            #[allow(non_snake_case, unused_mut, reason = "made by a macro for any number of arguments")]
            fn call(&self, mut request: Request<B>, matched: &Matched<'_>, state: &S) -> Answer<R> {
                $(let $part = or_reject!($part::from_parts(&mut request, matched, state));)*
                let $last = or_reject!($last::from_request(request, matched, state));
                self($($part,)* $last).into_response().into()
            }
        }

        impl<Fun, U, B, R, S, M, $($part,)* $last> Handler<B, R, S, Awaits<(M, $($part,)* $last)>> for Fun
        where
            Fun: Fn($($part,)* $last) -> U + Send + Sync + 'static,
            U: Future + Send + 'static,
            U::Output: IntoResponse<R>,
            R: 'static,
            $($part: FromParts<B, S>, $part::Rejection: IntoResponse<R>,)*
            $last: FromRequest<B, S, M>,
            $last::Rejection: IntoResponse<R>,
        {
            const PARAMS: Option<usize> = most(&[$($part::PARAMS,)* $last::PARAMS]);

            #[inline]
            #[allow(non_snake_case, unused_mut, reason = "made by a macro for any number of arguments")]
            fn call(&self, mut request: Request<B>, matched: &Matched<'_>, state: &S) -> Answer<R> {
                $(let $part = or_reject!($part::from_parts(&mut request, matched, state));)*
                let $last = or_reject!($last::from_request(request, matched, state));
                let future = self($($part,)* $last);
                Answer::new(Responding { future, body: PhantomData })
            }
        }
    };
}

handlers!(; A1);
handlers!(A1; A2);
handlers!(A1, A2; A3);
handlers!(A1, A2, A3; A4);
handlers!(A1, A2, A3, A4; A5);
handlers!(A1, A2, A3, A4, A5; A6);
handlers!(A1, A2, A3, A4, A5, A6; A7);
handlers!(A1, A2, A3, A4, A5, A6, A7; A8);

/// The largest of these numbers.
const fn most(params: &[Option<usize>]) -> Option<usize> {
    let (mut most, mut at) = (None, 0);
    while at < params.len() {
        match (most, params[at]) {
            (Some(known), Some(count)) if count <= known => {}
            (_, Some(count)) => most = Some(count),
            (_, None) => {}
        }
        at += 1;
    }
    most
}

/// What answers, its types forgotten.
pub(crate) trait Endpoint<B, R>: Send + Sync {
    fn call(&self, request: Request<B>, matched: &Matched<'_>) -> Answer<R>;
}

/// What answers once it is given a state.
pub(crate) trait Unbound<B, R, S>: Send + Sync {
    fn bind(self: Box<Self>, state: &S) -> Box<dyn Endpoint<B, R>>;
}

/// A handler without or with its state.
pub(crate) struct Bound<H, S, M> {
    pub(crate) handler: H,
    pub(crate) state: S,
    pub(crate) marker: PhantomData<fn() -> M>,
}

impl<H, B, R, S, M> Unbound<B, R, S> for Bound<H, (), M>
where
    H: Handler<B, R, S, M>,
    S: Clone + Send + Sync + 'static,
    M: 'static,
{
    fn bind(self: Box<Self>, state: &S) -> Box<dyn Endpoint<B, R>> {
        Box::new(Bound { handler: self.handler, state: state.clone(), marker: PhantomData::<fn() -> M> })
    }
}

impl<H, B, R, S, M> Endpoint<B, R> for Bound<H, S, M>
where
    H: Handler<B, R, S, M>,
    S: Send + Sync,
{
    #[inline]
    fn call(&self, request: Request<B>, matched: &Matched<'_>) -> Answer<R> {
        self.handler.call(request, matched, &self.state)
    }
}

/// A service, and what it sees of the path.
pub(crate) struct Mounted<V> {
    pub(crate) service: V,
    pub(crate) sees: Sees,
}

/// What a service sees of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    /// All of it.
    Path,
    /// `/` and the last parameter, a catch-all.
    Rest,
    /// `/`, since the path is the prefix.
    Root,
}

impl<V, B, R, D> Endpoint<B, R> for Mounted<V>
where
    V: Service<Request<B>, Response = Response<D>> + Clone + Send + Sync + 'static,
    V::Error: IntoResponse<R>,
    V::Future: Send + 'static,
    B: Send + 'static,
    R: Default + From<D> + 'static,
{
    fn call(&self, mut request: Request<B>, matched: &Matched<'_>) -> Answer<R> {
        let rest = match self.sees {
            Sees::Path => None,
            Sees::Rest => Some(matched.last(&request).unwrap_or_default()),
            Sees::Root => Some(""),
        };
        if let Some(rest) = rest {
            match beginning(request.uri(), rest) {
                Ok(uri) => *request.uri_mut() = uri,
                Err(_) => return StatusCode::BAD_REQUEST.into_response().into(),
            }
        }
        let mut service = self.service.clone();
        // Most services are ready at once, and then the request need not be kept.
        if let Poll::Ready(ready) = service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            return match ready {
                Ok(()) => {
                    let future = service.call(request);
                    Answer::new(async move { answered(future.await) })
                }
                Err(error) => error.into_response().into(),
            };
        }
        Answer::new(async move {
            if let Err(error) = std::future::poll_fn(|cx| service.poll_ready(cx)).await {
                return error.into_response();
            }
            answered(service.call(request).await)
        })
    }
}

/// The same URI with `/` and this path.
fn beginning(uri: &Uri, rest: &str) -> Result<Uri, http::Error> {
    let path = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path)?);
    Ok(Uri::from_parts(parts)?)
}

fn answered<D, E: IntoResponse<R>, R: From<D>>(result: Result<Response<D>, E>) -> Response<R> {
    match result {
        Ok(response) => response.map(R::from),
        Err(error) => error.into_response(),
    }
}
