//! Matching alone: routes with values, for whoever dispatches on their own.

use std::borrow::Cow;
use std::str::FromStr;

use crate::error::BuildError;
use crate::escape::{self, NotUtf8};
use crate::kind::{Kinds, Registered};
use crate::names::Names;
use crate::pattern;
use crate::tree::{Begun, Captures, Draft, Tree};

/// Routes that are added to, until [`build`](Self::build).
///
/// ```
/// let mut builder = router::matcher::Builder::new();
/// builder.insert("/users/{id:u64}", "user")?;
/// builder.insert("/users/me", "me")?;
/// let matcher = builder.build()?;
///
/// let found = matcher.find("/users/7").unwrap();
/// assert_eq!((*found.value, found.param("id")), ("user", Some("7")));
/// assert_eq!(*matcher.find("/users/me").unwrap().value, "me");
/// assert!(matcher.find("/users/you").is_none());
/// # Ok::<(), router::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Builder<T> {
    draft: Draft,
    kinds: Kinds,
    names: Names,
    values: Vec<T>,
}

impl<T> Default for Builder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Builder<T> {
    /// No routes.
    pub fn new() -> Self {
        Self { draft: Draft::default(), kinds: Kinds::new(), names: Names::default(), values: Vec::new() }
    }

    /// Lets routes say `{name:kind}` for what `K` can be read from. Types are tried in the order of their
    /// registration, after those that are built in.
    ///
    /// # Errors
    /// When another type has this name.
    pub fn kind<K: FromStr + 'static>(&mut self, name: &str) -> Result<(), BuildError> {
        self.kinds.register([Registered::new::<K>(name)])
    }

    /// Adds a route.
    ///
    /// # Errors
    /// When it is no pattern, names an unknown type, or matches the same paths as an earlier one.
    pub fn insert(&mut self, route: &str, value: T) -> Result<(), BuildError> {
        let segments = pattern::parse(route).map_err(|(at, reason)| BuildError::Syntax {
            route: route.to_owned(),
            at,
            reason,
        })?;
        let number = u32::try_from(self.values.len()).map_err(|_| BuildError::TooManyRoutes)?;
        let place = self
            .draft
            .value(&segments, &self.kinds)
            .map_err(|kind| BuildError::UnknownType { route: route.to_owned(), kind })?;
        if let Some(old) = *place {
            let old = self.names.route(old).to_owned();
            return Err(BuildError::Conflict { new: route.to_owned(), old, method: None });
        }
        *place = Some(number);
        self.names.push(route, &segments)?;
        self.values.push(value);
        Ok(())
    }

    /// The finished tree.
    ///
    /// # Errors
    /// When some path could cost too many tries.
    pub fn build(self) -> Result<Matcher<T>, BuildError> {
        Ok(Matcher { tree: self.draft.freeze(&self.kinds)?, names: self.names, values: self.values.into() })
    }
}

/// Routes with a value each. [`find`](Self::find) allocates only for a path with escapes that
/// RFC 3986, section 6.2.2 would write otherwise.
#[derive(Debug)]
pub struct Matcher<T> {
    tree: Tree,
    names: Names,
    values: Box<[T]>,
}

impl<T> Matcher<T> {
    /// The first route, in the order of precedence, that matches the path.
    #[inline]
    pub fn find<'m, 'p>(&'m self, path: &'p str) -> Option<Match<'m, 'p, T>> {
        let mut captures = Captures::new();
        let route = match self.tree.begin(path) {
            // Captures that nothing was written into need not be copied.
            Begun::Found(route) => return Some(self.matched(route, path, Captures::new())),
            begun => self.tree.finish(begun, path, &mut captures)?,
        };
        Some(self.matched(route, path, captures))
    }

    #[inline(always)]
    fn matched<'m, 'p>(&'m self, route: u32, path: &'p str, captures: Captures) -> Match<'m, 'p, T> {
        Match { value: &self.values[route as usize], names: &self.names, route, path, captures }
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
pub struct Match<'m, 'p, T> {
    /// What the route was added with.
    pub value: &'m T,
    names: &'m Names,
    route: u32,
    path: &'p str,
    captures: Captures,
}

impl<'m, 'p, T> Match<'m, 'p, T> {
    /// The route as it was written.
    pub fn route(&self) -> &'m str {
        self.names.route(self.route)
    }

    /// A parameter as it stands in the path.
    pub fn param(&self, name: &str) -> Option<&'p str> {
        let index = self.names.params(self.route).position(|known| known == name)?;
        self.captures.get(self.path, index)
    }

    /// A parameter without its escapes.
    pub fn decoded(&self, name: &str) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.param(name).map(escape::decode)
    }

    /// All parameters with their names, as they stand in the path, in the order of the route.
    pub fn params(&self) -> impl Iterator<Item = (&'m str, &'p str)> + '_ {
        let names = self.names.params(self.route);
        names.enumerate().filter_map(|(index, name)| Some((name, self.captures.get(self.path, index)?)))
    }
}
