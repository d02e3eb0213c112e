//! The frozen router, and a request's way through it.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{HeaderValue, LOCATION};
use http::{Method, Request, Response, StatusCode};
use tower_service::Service;

use crate::answer::Answer;
use crate::builder::Builder;
use crate::handler::Endpoint;
use crate::hosts::Hosts;
use crate::matched::Matched;
use crate::methods::{self, Found, Methods};
use crate::middleware::{self, Chain, Layer};
use crate::names::Names;
use crate::response::IntoResponse;
use crate::tree::{Captures, Tree};

/// Routes with their handlers and middlewares, frozen. Clones share it.
///
/// `B` is the body of requests, `R` that of responses.
pub struct Router<B, R>(Arc<Shared<B, R>>);

/// What all clones share.
pub(crate) struct Shared<B, R> {
    /// The tree of routes without a host is the first.
    pub(crate) trees: Box<[Tree]>,
    pub(crate) hosts: Option<Hosts>,
    /// By the values of the trees.
    pub(crate) paths: Box<[Methods]>,
    pub(crate) handlers: Box<[Slot<B, R>]>,
    pub(crate) names: Names,
    /// Chains of middlewares, from the root on.
    pub(crate) chains: Box<[Chain<B, R>]>,
    pub(crate) allows: Box<[HeaderValue]>,
    pub(crate) trailing_slash: TrailingSlash,
    pub(crate) fallback: Option<Box<dyn Endpoint<B, R>>>,
    /// That of what no route matches.
    pub(crate) root_chain: u32,
}

/// A handler of a route.
pub(crate) struct Slot<B, R> {
    pub(crate) endpoint: Box<dyn Endpoint<B, R>>,
    pub(crate) route: u32,
    pub(crate) chain: u32,
    pub(crate) method: Option<Method>,
}

/// What happens when a path matches nothing, but would with a `/` more or less at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// It is another path: 404.
    #[default]
    Strict,
    /// It is the same path.
    Ignore,
    /// 308 to the path that matches. Paths that begin with `//`, or with `/\` which browsers take for it, are
    /// left alone, since they would lead to another host.
    Redirect,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Handler(u32),
    /// A handler for GET, for its headers.
    Head(u32),
    /// A path, for its methods.
    Options(u32),
    /// A path that does not have the method.
    NotAllowed(u32),
    /// Nothing that is here.
    Nothing,
}

impl<B, R> Router<B, R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    /// A router to be.
    pub fn builder<S: Clone + Send + Sync + 'static>() -> Builder<B, R, S> {
        Builder::new()
    }

    /// Answers a request.
    #[inline]
    pub fn handle(&self, request: Request<B>) -> Answer<R> {
        let shared = &self.0;
        let mut captures = Captures::new();
        let Some(path) = shared.find(&request, request.uri().path(), &mut captures) else {
            return self.miss(request, captures);
        };
        self.dispatch(path, request, captures)
    }

    /// Every route with its method, `None` for all methods, in no particular order.
    pub fn routes(&self) -> impl Iterator<Item = (Option<&Method>, &str)> {
        self.0.handlers.iter().map(|slot| (slot.method.as_ref(), self.0.names.route(slot.route)))
    }

    #[inline]
    fn dispatch(&self, path: u32, request: Request<B>, captures: Captures) -> Answer<R> {
        let shared = &self.0;
        let found = shared.paths[path as usize].find(request.method());
        if let Found::Handler(handler) = found {
            let slot = &shared.handlers[handler as usize];
            if shared.chains[slot.chain as usize].is_empty() {
                let matched = Matched { names: &shared.names, route: Some(slot.route), captures: &captures };
                return slot.endpoint.call(request, &matched);
            }
        }
        let target = match found {
            Found::Handler(handler) => Target::Handler(handler),
            Found::Head(handler) => Target::Head(handler),
            Found::Options => Target::Options(path),
            Found::NotAllowed => Target::NotAllowed(path),
        };
        middleware::chain(shared, target, request, captures, 0)
    }

    /// What happens to a request whose path matches nothing as it is.
    #[cold]
    fn miss(&self, request: Request<B>, captures: Captures) -> Answer<R> {
        let shared = &self.0;
        if shared.trailing_slash == TrailingSlash::Ignore {
            let mut captures = Captures::new();
            if let Some((path, _)) = shared.find_other_slash(&request, &mut captures) {
                return self.dispatch(path, request, captures);
            }
        }
        middleware::chain(shared, Target::Nothing, request, captures, 0)
    }
}

impl<B, R> Shared<B, R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    /// The path that a request's is.
    #[inline]
    fn find(&self, request: &Request<B>, path: &str, captures: &mut Captures) -> Option<u32> {
        if let Some(hosts) = &self.hosts {
            let found = hosts.find(request, |tree| {
                *captures = Captures::new();
                self.trees[tree as usize].find(path, captures)
            });
            if found.is_some() {
                return found;
            }
            *captures = Captures::new();
        }
        self.trees[0].find(path, captures)
    }

    /// The path that a request's would be with a `/` less at its end, or more, and how it is then written.
    fn find_other_slash(&self, request: &Request<B>, captures: &mut Captures) -> Option<(u32, String)> {
        let path = request.uri().path();
        if path == "/" || !path.starts_with('/') {
            return None;
        }
        let other = path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned);
        Some((self.find(request, &other, captures)?, other))
    }

    /// The way to the path that a request's would be with a `/` less or more.
    fn redirect(&self, request: &Request<B>) -> Option<Response<R>> {
        let (_, mut location) = self.find_other_slash(request, &mut Captures::new())?;
        if location[1..].starts_with(['/', '\\']) {
            return None;
        }
        if let Some(query) = request.uri().query() {
            location.push('?');
            location.push_str(query);
        }
        let mut response: Response<R> = StatusCode::PERMANENT_REDIRECT.into_response();
        response.headers_mut().insert(LOCATION, HeaderValue::try_from(location).ok()?);
        Some(response)
    }

    /// The middlewares of a target.
    pub(crate) fn layers(&self, target: Target) -> &[Layer<B, R>] {
        let chain =
            self.handler(target).map_or(self.root_chain, |handler| self.handlers[handler as usize].chain);
        &self.chains[chain as usize]
    }

    /// What is known of a request for a target.
    pub(crate) fn matched<'s>(&'s self, target: Target, captures: &'s Captures) -> Matched<'s> {
        let route = self.handler(target).map(|handler| self.handlers[handler as usize].route);
        Matched { names: &self.names, route, captures }
    }

    /// The handler of a target, or the one of its path whose middlewares it shares.
    fn handler(&self, target: Target) -> Option<u32> {
        match target {
            Target::Handler(handler) | Target::Head(handler) => Some(handler),
            Target::Options(path) | Target::NotAllowed(path) => {
                Some(self.paths[path as usize].representative())
            }
            Target::Nothing => None,
        }
    }

    /// Answers a request that is through all middlewares.
    pub(crate) fn reach(&self, target: Target, request: Request<B>, captures: &Captures) -> Answer<R> {
        let matched = self.matched(target, captures);
        let allow = |path: u32| &self.allows[self.paths[path as usize].allow as usize];
        match target {
            Target::Handler(handler) => self.handlers[handler as usize].endpoint.call(request, &matched),
            Target::Head(handler) => {
                self.handlers[handler as usize].endpoint.call(request, &matched).map(methods::without_body)
            }
            Target::Options(path) => methods::allowing(StatusCode::NO_CONTENT, allow(path)).into(),
            Target::NotAllowed(path) => methods::allowing(StatusCode::METHOD_NOT_ALLOWED, allow(path)).into(),
            Target::Nothing if methods::asks_server(&request) => {
                StatusCode::NO_CONTENT.into_response().into()
            }
            Target::Nothing => {
                if self.trailing_slash == TrailingSlash::Redirect
                    && let Some(response) = self.redirect(&request)
                {
                    return response.into();
                }
                match &self.fallback {
                    Some(fallback) => fallback.call(request, &matched),
                    None => StatusCode::NOT_FOUND.into_response().into(),
                }
            }
        }
    }
}

impl<B, R> Clone for Router<B, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B, R> From<Shared<B, R>> for Router<B, R> {
    fn from(shared: Shared<B, R>) -> Self {
        Self(Arc::new(shared))
    }
}

impl<B, R> fmt::Debug for Router<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes =
            self.0.handlers.iter().map(|slot| (slot.method.as_ref(), self.0.names.route(slot.route)));
        f.debug_list().entries(routes).finish()
    }
}

impl<B, R> Service<Request<B>> for Router<B, R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = RouterFuture<R>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> RouterFuture<R> {
        RouterFuture { answer: self.handle(request) }
    }
}

pin_project_lite::pin_project! {
    /// The future of a router's response.
    #[derive(Debug)]
    pub struct RouterFuture<R> {
        #[pin]
        answer: Answer<R>,
    }
}

impl<R> Future for RouterFuture<R> {
    type Output = Result<Response<R>, Infallible>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(ready!(self.project().answer.poll(cx))))
    }
}
