//! A router while it is put together.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::Arc;

use http::header::HeaderValue;
use http::{Method, Request, Response};
use tower_service::Service;

use crate::answer::Answer;
use crate::error::BuildError;
use crate::handler::{Bound, Endpoint, Handler, Mounted, Sees, Unbound};
use crate::hosts::{self, Hosts};
use crate::kind::{Kinds, Registered};
use crate::matched::Matched;
use crate::methods::Methods;
use crate::middleware::{Chain, Layer, Next};
use crate::names::Names;
use crate::pattern;
use crate::response::IntoResponse;
use crate::router::{Router, Shared, Slot, TrailingSlash};
use crate::tree::Draft;

/// Routes, handlers and middlewares, until [`build`](Self::build) freezes them.
///
/// What is wrong with a route is told by [`build`](Self::build). Middlewares are for all routes of the
/// builder that they are added to and of those nested in it, whether these come earlier or later; the
/// first that is added is the outermost. They also see what the router answers on its own for a path of
/// theirs (OPTIONS, 405), and those of the outermost builder what it answers for any other (404).
pub struct Builder<B, R, S = ()> {
    routes: Vec<Route<B, R, S>>,
    /// The first is the builder's own.
    scopes: Vec<Scope<B, R>>,
    kinds: Vec<Registered>,
    trailing_slash: TrailingSlash,
    fallback: Option<Pending<B, R, S>>,
}

struct Route<B, R, S> {
    path: String,
    host: Option<String>,
    /// `None` for all.
    method: Option<Method>,
    handler: Pending<B, R, S>,
    /// How many parameters the handler takes.
    params: Option<usize>,
    scope: usize,
}

/// The middlewares of a builder, and the builder that it is nested in.
struct Scope<B, R> {
    parent: Option<usize>,
    layers: Vec<Layer<B, R>>,
}

/// A handler that has its state, or has not.
enum Pending<B, R, S> {
    Unbound(Box<dyn Unbound<B, R, S>>),
    Bound(Box<dyn Endpoint<B, R>>),
}

impl<B, R, S> Pending<B, R, S> {
    fn bind(self, state: &S) -> Box<dyn Endpoint<B, R>> {
        match self {
            Self::Unbound(handler) => handler.bind(state),
            Self::Bound(handler) => handler,
        }
    }
}

/// Methods of the same name.
macro_rules! by_method {
    ($($name:ident $method:ident $article:literal,)+) => {
        $(
            #[doc = concat!("Answers ", $article, " ", stringify!($method), " request for the path.")]
            #[must_use]
            pub fn $name<H, M>(self, path: &str, handler: H) -> Self
            where
                H: Handler<B, R, S, M>,
                M: 'static,
            {
                self.on(Method::$method, path, handler)
            }
        )+
    };
}

impl<B, R, S> Builder<B, R, S>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
    S: Clone + Send + Sync + 'static,
{
    /// No routes.
    pub fn new() -> Self {
        Self {
            routes: Vec::new(),
            scopes: vec![Scope { parent: None, layers: Vec::new() }],
            kinds: Vec::new(),
            trailing_slash: TrailingSlash::default(),
            fallback: None,
        }
    }

    by_method! {
        get GET "a",
        post POST "a",
        put PUT "a",
        patch PATCH "a",
        delete DELETE "a",
        head HEAD "a",
        options OPTIONS "an",
    }

    /// Answers requests of this method for the path. HEAD is answered by GET's handler, and OPTIONS with the
    /// methods of the path, unless they have handlers.
    #[must_use]
    pub fn on<H, M>(self, method: Method, path: &str, handler: H) -> Self
    where
        H: Handler<B, R, S, M>,
        M: 'static,
    {
        self.route(Some(method), path, pending(handler), H::PARAMS)
    }

    /// Answers all methods for the path that have no handler of their own.
    #[must_use]
    pub fn any<H, M>(self, path: &str, handler: H) -> Self
    where
        H: Handler<B, R, S, M>,
        M: 'static,
    {
        self.route(None, path, pending(handler), H::PARAMS)
    }

    /// Answers what nothing else does, instead of 404. That of a nested builder is dropped.
    #[must_use]
    pub fn fallback<H, M>(mut self, handler: H) -> Self
    where
        H: Handler<B, R, S, M>,
        M: 'static,
    {
        self.fallback = Some(pending(handler));
        self
    }

    /// Has a service answer all methods for the path. It sees the request as it came.
    #[must_use]
    pub fn service<V, D>(self, path: &str, service: V) -> Self
    where
        V: Service<Request<B>, Response = Response<D>> + Clone + Send + Sync + 'static,
        V::Error: IntoResponse<R>,
        V::Future: Send + 'static,
        B: Send,
        R: From<D>,
    {
        self.route(None, path, Pending::Bound(Box::new(Mounted { service, sees: Sees::Path })), None)
    }

    /// Has a service answer all paths that begin with the segments of the prefix, and that no other route
    /// answers. Of the path it sees what follows the prefix, `/` at least.
    #[must_use]
    pub fn mount<V, D>(self, prefix: &str, service: V) -> Self
    where
        V: Service<Request<B>, Response = Response<D>> + Clone + Send + Sync + 'static,
        V::Error: IntoResponse<R>,
        V::Future: Send + 'static,
        B: Send,
        R: From<D>,
    {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let root = || Pending::Bound(Box::new(Mounted { service: service.clone(), sees: Sees::Root }));
        let rest = Pending::Bound(Box::new(Mounted { service: service.clone(), sees: Sees::Rest }));
        let mut builder = self.route(None, &format!("{prefix}/"), root(), None);
        if !prefix.is_empty() {
            builder = builder.route(None, prefix, root(), None);
        }
        builder.route(None, &format!("{prefix}/{{*{REST}}}"), rest, None)
    }

    /// Puts the routes of another builder below a prefix, which may have parameters. Its `/` is the prefix
    /// itself. Its middlewares stay with its routes.
    #[must_use]
    pub fn nest(mut self, prefix: &str, nested: Self) -> Self {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let first = self.adopt(nested.scopes, nested.kinds);
        self.routes.extend(nested.routes.into_iter().map(|route| {
            let path = match route.path.as_str() {
                "/" if !prefix.is_empty() => prefix.to_owned(),
                path => format!("{prefix}{path}"),
            };
            Route { path, scope: first + route.scope, ..route }
        }));
        self
    }

    /// Has the routes of another builder answer for a host only: a name, or `*.` and a name for all hosts
    /// below it. They come before the routes for all hosts; those of the most exact host come first.
    #[must_use]
    pub fn host(mut self, host: &str, nested: Self) -> Self {
        let first = self.adopt(nested.scopes, nested.kinds);
        self.routes.extend(nested.routes.into_iter().map(|route| {
            let host = route.host.unwrap_or_else(|| host.to_owned());
            Route { host: Some(host), scope: first + route.scope, ..route }
        }));
        self
    }

    /// Takes over the scopes of a builder that becomes nested; they begin at the number that is returned.
    fn adopt(&mut self, scopes: Vec<Scope<B, R>>, kinds: Vec<Registered>) -> usize {
        let first = self.scopes.len();
        self.scopes.extend(scopes.into_iter().map(|scope| Scope {
            parent: Some(scope.parent.map_or(0, |parent| first + parent)),
            layers: scope.layers,
        }));
        self.kinds.extend(kinds);
        first
    }

    /// Lets routes say `{name:kind}` for what `K` can be read from. Types are tried in the order of their
    /// registration, after those that are built in.
    #[must_use]
    pub fn kind<K: FromStr + 'static>(mut self, name: &str) -> Self {
        self.kinds.push(Registered::new::<K>(name));
        self
    }

    /// What happens to a path with a `/` too many or too few. That of a nested builder does not count.
    #[must_use]
    pub fn trailing_slash(mut self, policy: TrailingSlash) -> Self {
        self.trailing_slash = policy;
        self
    }

    /// Looks at each request first, and may answer it.
    #[must_use]
    pub fn before<F>(mut self, layer: F) -> Self
    where
        F: Fn(&mut Request<B>, &Matched<'_>) -> ControlFlow<Response<R>> + Send + Sync + 'static,
    {
        self.scopes[0].layers.push(Layer::Before(Arc::new(layer)));
        self
    }

    /// Looks at each response last.
    #[must_use]
    pub fn after<F>(mut self, layer: F) -> Self
    where
        F: Fn(&mut Response<R>) + Send + Sync + 'static,
    {
        self.scopes[0].layers.push(Layer::After(Arc::new(layer)));
        self
    }

    /// Takes each request and gives its response, with the help of [`Next`] or not. Costs a reference count
    /// a request, which [`before`](Self::before) and [`after`](Self::after) do not. A function that
    /// gives [`Next::run`]'s answer itself, perhaps [changed](Answer::map), needs no future of its own.
    #[must_use]
    pub fn around<F, U>(mut self, layer: F) -> Self
    where
        F: Fn(Request<B>, Next<B, R>) -> U + Send + Sync + 'static,
        U: Future<Output = Response<R>> + Send + 'static,
    {
        let layer = move |request, next| Answer::new(layer(request, next));
        self.scopes[0].layers.push(Layer::Around(Arc::new(layer)));
        self
    }

    /// Gives its state to all handlers that are there. The builder takes handlers for another state from
    /// here on, none for the most part.
    #[must_use]
    pub fn with_state<T>(self, state: S) -> Builder<B, R, T> {
        let bind = |handler: Pending<B, R, S>| Pending::Bound(handler.bind(&state));
        let routes = self.routes.into_iter().map(|route| Route {
            path: route.path,
            host: route.host,
            method: route.method,
            handler: bind(route.handler),
            params: route.params,
            scope: route.scope,
        });
        Builder {
            routes: routes.collect(),
            scopes: self.scopes,
            kinds: self.kinds,
            trailing_slash: self.trailing_slash,
            fallback: self.fallback.map(bind),
        }
    }

    fn route(
        mut self,
        method: Option<Method>,
        path: &str,
        handler: Pending<B, R, S>,
        params: Option<usize>,
    ) -> Self {
        self.routes.push(Route { path: path.to_owned(), host: None, method, handler, params, scope: 0 });
        self
    }
}

/// The name of the parameter that a mounted service sees as its path.
const REST: &str = "__rest";

fn pending<B, R, S, H, M>(handler: H) -> Pending<B, R, S>
where
    H: Handler<B, R, S, M>,
    S: Clone + Send + Sync + 'static,
    B: 'static,
    R: 'static,
    M: 'static,
{
    Pending::Unbound(Box::new(Bound { handler, state: (), marker: PhantomData::<fn() -> M> }))
}

impl<B, R, S> Default for Builder<B, R, S>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
    S: Clone + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<B, R, S> std::fmt::Debug for Builder<B, R, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| (&route.method, &route.path))).finish()
    }
}

impl<B, R> Builder<B, R>
where
    B: 'static,
    R: http_body::Body + Default + 'static,
{
    /// Freezes the router.
    ///
    /// # Errors
    /// When a route is no pattern, names an unknown type, does not have the parameters that its handler
    /// takes, or is there twice for one method; when a host is none; when some path could cost too many
    /// tries.
    pub fn build(self) -> Result<Router<B, R>, BuildError> {
        let (chains, chain_of) = chains(&self.scopes);
        let mut kinds = Kinds::new();
        kinds.register(self.kinds)?;
        let mut frozen = Freezing::new(kinds);
        for route in self.routes {
            frozen.add(route, &chain_of)?;
        }
        let trees = frozen.drafts.into_iter().map(|draft| draft.freeze(&frozen.kinds));
        let trees = trees.collect::<Result<Box<[_]>, _>>()?;
        let mut hosts = Hosts::default();
        for (host, tree) in &frozen.hosts {
            hosts.add(host, *tree);
        }

        // The handlers of one path side by side, so that a path need only know where they begin.
        let mut allows = BTreeMap::new();
        let mut paths = Vec::with_capacity(frozen.paths.len());
        let mut order = Vec::with_capacity(frozen.slots.len());
        for handlers in frozen.paths {
            let (mut methods, numbers) = Methods::new(order.len() as u32, handlers);
            let next = allows.len() as u32;
            methods.allow = *allows.entry(methods.allow()).or_insert(next);
            order.extend(numbers);
            paths.push(methods);
        }
        let mut slots: Vec<Option<Slot<B, R>>> = frozen.slots.into_iter().map(Some).collect();
        let handlers = order.iter().filter_map(|&number| slots[number as usize].take()).collect();
        let mut values = vec![HeaderValue::from_static(""); allows.len()];
        for (allow, number) in allows {
            // Methods are tokens, which a field may hold.
            values[number as usize] = HeaderValue::try_from(allow).unwrap_or(HeaderValue::from_static(""));
        }
        Ok(Shared {
            trees,
            hosts: (!frozen.hosts.is_empty()).then_some(hosts),
            paths: paths.into(),
            handlers,
            names: frozen.names,
            chains,
            allows: values.into(),
            trailing_slash: self.trailing_slash,
            fallback: self.fallback.map(|fallback| fallback.bind(&())),
            root_chain: chain_of[0],
        }
        .into())
    }
}

/// The middlewares that routes of a scope go through, from the outermost scope on, and which chain that is
/// for each scope. Scopes that add none share a chain.
fn chains<B, R>(scopes: &[Scope<B, R>]) -> (Box<[Chain<B, R>]>, Vec<u32>) {
    let mut chains: Vec<Chain<B, R>> = vec![Box::default()];
    let mut chain_of: Vec<u32> = Vec::with_capacity(scopes.len());
    for scope in scopes {
        // Parents come before what is nested in them.
        let outer = scope.parent.map_or(0, |parent| chain_of[parent]);
        if scope.layers.is_empty() {
            chain_of.push(outer);
            continue;
        }
        let layers = chains[outer as usize].iter().chain(&scope.layers).cloned().collect();
        chain_of.push(chains.len() as u32);
        chains.push(layers);
    }
    (chains.into(), chain_of)
}

/// A router on its way to be frozen.
struct Freezing<B, R> {
    kinds: Kinds,
    /// That of routes without a host is the first.
    drafts: Vec<Draft>,
    hosts: HashMap<String, u32>,
    /// The methods of each path, and their slots.
    paths: Vec<Vec<(Option<Method>, u32)>>,
    slots: Vec<Slot<B, R>>,
    names: Names,
}

impl<B, R> Freezing<B, R>
where
    B: 'static,
    R: 'static,
{
    fn new(kinds: Kinds) -> Self {
        let drafts = vec![Draft::default()];
        Self {
            kinds,
            drafts,
            hosts: HashMap::new(),
            paths: Vec::new(),
            slots: Vec::new(),
            names: Names::default(),
        }
    }

    fn add(&mut self, route: Route<B, R, ()>, chain_of: &[u32]) -> Result<(), BuildError> {
        let text = || route.path.clone();
        let segments = pattern::parse(&route.path).map_err(|(at, reason)| BuildError::Syntax {
            route: text(),
            at,
            reason,
        })?;
        let has = segments.iter().filter(|segment| segment.name().is_some()).count();
        if let Some(takes) = route.params.filter(|&takes| takes != has) {
            return Err(BuildError::Arity { route: text(), has, takes });
        }
        let tree = match &route.host {
            None => 0,
            Some(host) => self.host(host)?,
        };
        let value = self.drafts[tree]
            .value(&segments, &self.kinds)
            .map_err(|kind| BuildError::UnknownType { route: text(), kind })?;
        let path = *value.get_or_insert_with(|| {
            self.paths.push(Vec::new());
            self.paths.len() as u32 - 1
        });
        let path = &mut self.paths[path as usize];
        if let Some((_, old)) = path.iter().find(|(method, _)| *method == route.method) {
            let old = self.names.route(*old).to_owned();
            let method = route.method.as_ref().map(Method::to_string);
            return Err(BuildError::Conflict { new: text(), old, method });
        }
        let number = u32::try_from(self.slots.len()).map_err(|_| BuildError::TooManyRoutes)?;
        path.push((route.method.clone(), number));
        self.names.push(&route.path, &segments)?;
        self.slots.push(Slot {
            endpoint: route.handler.bind(&()),
            route: number,
            chain: chain_of[route.scope],
            method: route.method,
        });
        Ok(())
    }

    /// The tree of a host.
    fn host(&mut self, host: &str) -> Result<usize, BuildError> {
        let host = hosts::normal(host).ok_or_else(|| BuildError::Host(host.to_owned()))?;
        let drafts = &mut self.drafts;
        let tree = self.hosts.entry(host).or_insert_with(|| {
            drafts.push(Draft::default());
            drafts.len() as u32 - 1
        });
        Ok(*tree as usize)
    }
}
