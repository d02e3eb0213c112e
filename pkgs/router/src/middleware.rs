//! What happens around handlers.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::{Request, Response};

use crate::answer::Answer;
use crate::matched::Matched;
use crate::router::{Shared, Target};
use crate::tree::Captures;

/// A middleware; what it holds is shared by all routes below it.
pub(crate) enum Layer<B, R> {
    Before(Arc<Before<B, R>>),
    After(Arc<After<R>>),
    Around(Arc<Around<B, R>>),
}

/// All middlewares of a route, the outermost first.
pub(crate) type Chain<B, R> = Box<[Layer<B, R>]>;

pub(crate) type Before<B, R> =
    dyn Fn(&mut Request<B>, &Matched<'_>) -> ControlFlow<Response<R>> + Send + Sync;
pub(crate) type After<R> = dyn Fn(&mut Response<R>) + Send + Sync;
pub(crate) type Around<B, R> = dyn Fn(Request<B>, Next<B, R>) -> Answer<R> + Send + Sync;

impl<B, R> Clone for Layer<B, R> {
    fn clone(&self) -> Self {
        match self {
            Self::Before(layer) => Self::Before(layer.clone()),
            Self::After(layer) => Self::After(layer.clone()),
            Self::Around(layer) => Self::Around(layer.clone()),
        }
    }
}

/// What follows a middleware: the next one, at last the handler.
pub struct Next<B, R> {
    shared: Arc<Shared<B, R>>,
    target: Target,
    captures: Captures,
    /// How many of the middlewares are done.
    done: usize,
}

impl<B, R> Next<B, R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    /// What follows answers the request.
    pub fn run(self, request: Request<B>) -> Answer<R> {
        chain(&self.shared, self.target, request, self.captures, self.done)
    }

    /// The route of the request, and its parameters.
    pub fn matched(&self) -> Matched<'_> {
        self.shared.matched(self.target, &self.captures)
    }
}

impl<B, R> std::fmt::Debug for Next<B, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Next").field("target", &self.target).field("done", &self.done).finish_non_exhaustive()
    }
}

/// Takes the request through the middlewares that are not done and to its target, and the response back.
pub(crate) fn chain<B, R>(
    shared: &Arc<Shared<B, R>>,
    target: Target,
    mut request: Request<B>,
    captures: Captures,
    done: usize,
) -> Answer<R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    let layers = shared.layers(target);
    let mut afters = 0;
    let mut reached = done;
    let answer = loop {
        match layers.get(reached) {
            None => break shared.reach(target, request, &captures),
            Some(Layer::Before(before)) => {
                if let ControlFlow::Break(response) = before(&mut request, &shared.matched(target, &captures))
                {
                    break response.into();
                }
            }
            Some(Layer::After(_)) => afters += 1,
            Some(Layer::Around(around)) => {
                let next = Next { shared: shared.clone(), target, captures, done: reached + 1 };
                break around(request, next);
            }
        }
        reached += 1;
    };
    if afters == 0 {
        return answer;
    }
    answer.change(|response| after(&layers[done..reached], response)).unwrap_or_else(|answer| {
        let shared = shared.clone();
        answer.map(move |mut response| {
            after(&shared.layers(target)[done..reached], &mut response);
            response
        })
    })
}

/// The innermost is the first on the way back.
fn after<B, R>(layers: &[Layer<B, R>], response: &mut Response<R>) {
    for layer in layers.iter().rev() {
        if let Layer::After(after) = layer {
            after(response);
        }
    }
}

/// Logs each request when its response is ready, at level INFO: method, route, status and microseconds.
/// For [`Builder::around`](crate::Builder::around). Costs a comparison while nobody listens, and nothing with
/// the feature `no-tracing`.
pub fn log<B, R>(request: Request<B>, next: Next<B, R>) -> Answer<R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    if !tracing::enabled!(tracing::Level::INFO) {
        return next.run(request);
    }
    let started = std::time::Instant::now();
    let method = request.method().clone();
    let route = next.matched().route().map(str::to_owned);
    next.run(request).map(move |response| {
        let micros = started.elapsed().as_micros() as u64;
        let status = response.status().as_u16();
        tracing::info!(%method, route, status, micros, "answered");
        response
    })
}
