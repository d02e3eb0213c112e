//! Routes with their values: while they are put together, frozen, and found.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use http::Method;
use http::header::HeaderValue;

use crate::error::BuildError;
use crate::escape::{self, NotUtf8};
use crate::methods::{self, Methods};
use crate::names::Names;
use crate::pattern;
use crate::tree::{Begun, Captures, Draft, Tree};

/// Routes that are added to, until [`build`](Self::build).
pub struct Builder<T> {
    draft: Draft,
    names: Names,
    /// The methods of each path, and their routes.
    paths: Vec<Vec<(Method, u32)>>,
    values: Vec<T>,
}

impl<T> Builder<T> {
    /// No routes.
    pub fn new() -> Self {
        Self { draft: Draft::default(), names: Names::default(), paths: Vec::new(), values: Vec::new() }
    }

    /// Adds a route. A GET is HEAD's too, unless HEAD has a route of its own.
    ///
    /// # Errors
    /// When the pattern is none, or matches the same paths as an earlier one of this method.
    pub fn insert(&mut self, method: Method, pattern: &str, value: T) -> Result<(), BuildError> {
        let segments = pattern::parse(pattern).map_err(|(at, reason)| BuildError::Syntax {
            route: pattern.to_owned(),
            at,
            reason,
        })?;
        let number = u32::try_from(self.values.len()).map_err(|_| BuildError::TooManyRoutes)?;
        let path = *self.draft.value(&segments).get_or_insert_with(|| {
            self.paths.push(Vec::new());
            self.paths.len() as u32 - 1
        });
        let path = &mut self.paths[path as usize];
        if let Some((_, old)) = path.iter().find(|(known, _)| *known == method) {
            let old = self.names.route(*old).to_owned();
            return Err(BuildError::Conflict { new: pattern.to_owned(), old, method: method.to_string() });
        }
        self.names.push(pattern, &segments)?;
        path.push((method, number));
        self.values.push(value);
        Ok(())
    }

    /// The finished table.
    ///
    /// # Errors
    /// When some path could cost too many tries.
    pub fn build(self) -> Result<Router<T>, BuildError> {
        let mut numbers = HashMap::new();
        let mut allows = Vec::new();
        let paths = self.paths.into_iter().map(|routes| {
            let text = methods::allow(&routes);
            let allow = *numbers.entry(text).or_insert_with_key(|text| {
                // Methods are tokens, which a field may hold.
                allows.push(HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("")));
                allows.len() as u32 - 1
            });
            Methods::new(routes, allow)
        });
        Ok(Router {
            paths: paths.collect(),
            allows: allows.into(),
            tree: self.draft.freeze()?,
            names: self.names,
            values: self.values.into(),
        })
    }
}

impl<T> Default for Builder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("routes", &self.values.len()).finish_non_exhaustive()
    }
}

/// Routes with a value each, frozen.
#[derive(Debug)]
pub struct Router<T> {
    tree: Tree,
    names: Names,
    /// By the values of the tree.
    paths: Box<[Methods]>,
    /// What [`Methods`] refer to.
    allows: Box<[HeaderValue]>,
    /// By the numbers of routes.
    values: Box<[T]>,
}

/// What there is for a method and a path.
#[derive(Debug)]
pub enum Lookup<'r, 'p, T> {
    /// A route.
    Match(Match<'r, 'p, T>),
    /// Routes for the path, but none for the method: 405. What `Allow` has to say (RFC 9110, section 10.2.1): methods
    /// in the order in which their routes were added, with a comma between two.
    MethodNotAllowed(&'r HeaderValue),
    /// No route for the path: 404.
    NotFound,
}

impl<'r, 'p, T> Lookup<'r, 'p, T> {
    /// The route, if there is one.
    pub fn matched(self) -> Option<Match<'r, 'p, T>> {
        match self {
            Self::Match(found) => Some(found),
            _ => None,
        }
    }
}

impl<T> Router<T> {
    /// What there is for a method and a path, which is a URI's without its query. Allocates only for a path with
    /// escapes that RFC 3986, section 6.2.2 would write otherwise.
    #[inline]
    pub fn find<'r, 'p>(&'r self, method: &Method, path: &'p str) -> Lookup<'r, 'p, T> {
        let mut captures = Captures::new();
        let number = match self.tree.begin(path) {
            // Captures that nothing was written into need not be copied.
            Begun::Found(number) => return self.choose(number, method, path, Captures::new()),
            begun => self.tree.finish(begun, path, &mut captures),
        };
        match number {
            Some(number) => self.choose(number, method, path, captures),
            None => Lookup::NotFound,
        }
    }

    #[inline(always)]
    fn choose<'r, 'p>(
        &'r self,
        number: u32,
        method: &Method,
        path: &'p str,
        captures: Captures,
    ) -> Lookup<'r, 'p, T> {
        let methods = &self.paths[number as usize];
        let Some(route) = methods.find(method) else {
            return Lookup::MethodNotAllowed(&self.allows[methods.allow() as usize]);
        };
        Lookup::Match(Match {
            value: &self.values[route as usize],
            names: &self.names,
            route,
            path,
            captures,
        })
    }

    /// The most nodes of the tree that any path visits, at most [`MAX_TRIES`](crate::MAX_TRIES). It does
    /// not grow with the number of routes, only with the places where static segments and parameters
    /// compete.
    pub fn tries(&self) -> u32 {
        self.tree.tries()
    }
}

/// A route that matched.
#[derive(Debug)]
pub struct Match<'r, 'p, T> {
    /// What the route was added with.
    pub value: &'r T,
    names: &'r Names,
    route: u32,
    path: &'p str,
    captures: Captures,
}

impl<'r, 'p, T> Match<'r, 'p, T> {
    /// The route's pattern as it was written.
    pub fn pattern(&self) -> &'r str {
        self.names.route(self.route)
    }

    /// A parameter as it stands in the path.
    #[inline]
    pub fn param(&self, name: &str) -> Option<&'p str> {
        let index = self.names.params(self.route).position(|known| known == name)?;
        self.captures.get(self.path, index)
    }

    /// A parameter without its escapes.
    pub fn decoded(&self, name: &str) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.param(name).map(|raw| self.decode(raw))
    }

    /// The first parameter without its escapes: of a route that has one, without a look for its name.
    #[inline]
    pub fn first_decoded(&self) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.captures.get(self.path, 0).map(|raw| self.decode(raw))
    }

    /// Where the walk has seen no escape, there is none to look for.
    #[inline]
    fn decode(&self, raw: &'p str) -> Result<Cow<'p, str>, NotUtf8> {
        if self.captures.has_escapes() { escape::decode(raw) } else { Ok(Cow::Borrowed(raw)) }
    }

    /// All parameters with their names, as they stand in the path, in the order of the pattern.
    pub fn params(&self) -> impl Iterator<Item = (&'r str, &'p str)> + '_ {
        let names = self.names.params(self.route);
        names.enumerate().filter_map(|(index, name)| Some((name, self.captures.get(self.path, index)?)))
    }
}
