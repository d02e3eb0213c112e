//! What is known of a request once its route is found.

use std::borrow::Cow;

use http::Request;

use crate::escape::{self, NotUtf8};
use crate::names::Names;
use crate::tree::Captures;

/// The route of a request, and where its parameters are in the path.
///
/// Parameters are looked up in the request at hand, and are its own only as long as nobody puts another
/// path into it.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'r> {
    pub(crate) names: &'r Names,
    pub(crate) route: Option<u32>,
    pub(crate) captures: &'r Captures,
}

impl<'r> Matched<'r> {
    /// The route as it was written, with the prefixes of all routers it is nested in. `None` in the fallback.
    pub fn route(&self) -> Option<&'r str> {
        self.route.map(|route| self.names.route(route))
    }

    /// What a parameter is, as it stands in the path.
    pub fn raw<'p, B>(&self, request: &'p Request<B>, name: &str) -> Option<&'p str> {
        let index = self.names.params(self.route?).position(|known| known == name)?;
        self.captures.get(request.uri().path(), index)
    }

    /// What a parameter is, without its escapes.
    pub fn param<'p, B>(&self, request: &'p Request<B>, name: &str) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.raw(request, name).map(escape::decode)
    }

    /// All parameters with their names, as they stand in the path, in the order of the route.
    pub fn params<'p, B>(&self, request: &'p Request<B>) -> impl Iterator<Item = (&'r str, &'p str)> {
        let (captures, path) = (self.captures, request.uri().path());
        let names = self.route.map(|route| self.names.params(route)).into_iter().flatten();
        names.enumerate().filter_map(move |(index, name)| Some((name, captures.get(path, index)?)))
    }

    /// The last parameter, as it stands in the path.
    pub(crate) fn last<'p, B>(&self, request: &'p Request<B>) -> Option<&'p str> {
        self.captures.get(request.uri().path(), self.captures.len().checked_sub(1)?)
    }

    /// The parameter at `index`, without its escapes.
    pub(crate) fn at<'p, B>(
        &self,
        request: &'p Request<B>,
        index: usize,
    ) -> Option<Result<Cow<'p, str>, NotUtf8>> {
        self.captures.get(request.uri().path(), index).map(escape::decode)
    }
}
