//! Routes with their values: collecting them, freezing them, and finding one.

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

/// Collects routes until [`build`](Self::build).
pub struct Builder<T> {
    draft: Draft,
    names: Names,
    /// The methods of each path, with their routes.
    paths: Vec<Vec<(Method, u32)>>,
    values: Vec<T>,
}

impl<T> Builder<T> {
    /// A builder without routes.
    pub fn new() -> Self {
        Self { draft: Draft::default(), names: Names::default(), paths: Vec::new(), values: Vec::new() }
    }

    /// Adds a route. A GET route also serves HEAD, unless HEAD has its own route.
    ///
    /// # Errors
    /// When the pattern is invalid, or matches the same paths as an earlier pattern with this method.
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

    /// Builds the table.
    ///
    /// # Errors
    /// When some path could cost too many attempts.
    pub fn build(self) -> Result<Router<T>, BuildError> {
        let mut numbers = HashMap::new();
        let mut allows = Vec::new();
        let paths = self.paths.into_iter().map(|routes| {
            let text = methods::allow(&routes);
            let allow = *numbers.entry(text).or_insert_with_key(|text| {
                // Methods are tokens, which are valid in a field.
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

/// A frozen table of routes, each with a value.
#[derive(Debug)]
pub struct Router<T> {
    tree: Tree,
    names: Names,
    /// The methods of each path. The tree's values are indices into this.
    paths: Box<[Methods]>,
    /// The values of `Allow` that [`Methods`] refer to.
    allows: Box<[HeaderValue]>,
    /// The values of the routes, by route number.
    values: Box<[T]>,
}

/// The result for a method and a path.
#[derive(Debug)]
pub enum Lookup<'r, 'p, T> {
    /// A route.
    Match(Match<'r, 'p, T>),
    /// The path has routes, but none for the method: 405. Contains the value of `Allow` (RFC 9110, section 10.2.1): the
    /// methods in the order of their routes, separated by commas.
    MethodNotAllowed(&'r HeaderValue),
    /// No route for the path: 404.
    NotFound,
}

impl<'r, 'p, T> Lookup<'r, 'p, T> {
    /// The match, if there is one.
    pub fn matched(self) -> Option<Match<'r, 'p, T>> {
        match self {
            Self::Match(found) => Some(found),
            _ => None,
        }
    }
}

impl<T> Router<T> {
    /// Finds the route for a method and a path, which is a URI's path without its query. Allocates only for a path with
    /// escapes that RFC 3986, section 6.2.2 normalises.
    #[inline]
    pub fn find<'r, 'p>(&'r self, method: &Method, path: &'p str) -> Lookup<'r, 'p, T> {
        let mut captures = Captures::new();
        let number = match self.tree.begin(path) {
            // Passing empty captures here avoids a copy.
            Begun::Found(number) => return self.choose(number, method, path, Captures::new()),
            begun => self.tree.finish(begun, path, &mut captures),
        };
        match number {
            Some(number) => self.choose(number, method, path, captures),
            None => Lookup::NotFound,
        }
    }

    /// The route and the parameter of a path that is one segment, without escapes, all of which the parameter takes: a
    /// shorter way for routes that are asked for most. `None` says nothing: then [`find`](Self::find) tells.
    #[inline]
    pub fn find_segment<'r, 'p>(&'r self, method: &Method, path: &'p str) -> Option<(&'r T, &'p str)> {
        let number = self.tree.single(path.as_bytes())?;
        let route = self.paths[number as usize].find(method)?;
        Some((&self.values[route as usize], path.get(1..)?))
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

    /// The most nodes of the tree that any path visits, at most [`MAX_TRIES`](crate::MAX_TRIES). This number grows only
    /// with the number of places where static segments and parameters compete, not with the number of routes.
    pub fn tries(&self) -> u32 {
        self.tree.tries()
    }
}

/// A route that matched.
#[derive(Debug)]
pub struct Match<'r, 'p, T> {
    /// The route's value.
    pub value: &'r T,
    names: &'r Names,
    route: u32,
    path: &'p str,
    captures: Captures,
}

impl<'r, 'p, T> Match<'r, 'p, T> {
    /// The route's pattern, as written.
    pub fn pattern(&self) -> &'r str {
        self.names.route(self.route)
    }

    /// A parameter, as written in the path.
    #[inline]
    pub fn param(&self, name: &str) -> Option<&'p str> {
        let index = self.names.params(self.route).position(|known| known == name)?;
        self.captures.get(self.path, index)
    }

    /// A parameter, decoded.
    pub fn decoded(&self, name: &str) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.param(name).map(|raw| self.decode(raw))
    }

    /// The first parameter, decoded. For a route with a single parameter, this avoids the search by name.
    #[inline]
    pub fn first_decoded(&self) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.captures.get(self.path, 0).map(|raw| self.decode(raw))
    }

    /// Decodes a parameter. If matching saw no escape, there is nothing to decode.
    #[inline]
    fn decode(&self, raw: &'p str) -> Result<Cow<'p, str>, NotUtf8> {
        if self.captures.has_escapes() { escape::decode(raw) } else { Ok(Cow::Borrowed(raw)) }
    }

    /// All parameters with their names, as written in the path, in the pattern's order.
    pub fn params(&self) -> impl Iterator<Item = (&'r str, &'p str)> + '_ {
        let names = self.names.params(self.route);
        names.enumerate().filter_map(|(index, name)| Some((name, self.captures.get(self.path, index)?)))
    }
}
