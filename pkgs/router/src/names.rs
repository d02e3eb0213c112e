//! The texts of routes and the names of their parameters.

use crate::error::BuildError;
use crate::pattern::Segment;

/// The texts of all routes, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: String,
    routes: Vec<Route>,
    /// The parameters' names, as ranges of `texts`.
    params: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct Route {
    start: u32,
    length: u16,
    params: u8,
    first: u32,
}

impl Names {
    /// Appends a route. Its number is the count of earlier routes.
    pub(crate) fn push(&mut self, route: &str, segments: &[Segment<'_>]) -> Result<(), BuildError> {
        let start = u32::try_from(self.texts.len() + route.len()).map_err(|_| BuildError::TooManyRoutes)?;
        let (start, first) = (start - route.len() as u32, self.params.len() as u32);
        for name in segments.iter().filter_map(Segment::name) {
            // The name lies within the route's text.
            let offset = start + (name.as_ptr() as usize - route.as_ptr() as usize) as u32;
            self.params.push((offset, offset + name.len() as u32));
        }
        self.texts.push_str(route);
        let params = (self.params.len() as u32 - first) as u8;
        self.routes.push(Route { start, length: route.len() as u16, params, first });
        Ok(())
    }

    /// The text of a route.
    pub(crate) fn route(&self, number: u32) -> &str {
        let route = &self.routes[number as usize];
        &self.texts[route.start as usize..][..usize::from(route.length)]
    }

    /// The names of a route's parameters, in their order in the route.
    pub(crate) fn params(&self, number: u32) -> impl ExactSizeIterator<Item = &str> + Clone {
        let route = &self.routes[number as usize];
        let params = &self.params[route.first as usize..][..usize::from(route.params)];
        params.iter().map(|&(start, end)| &self.texts[start as usize..end as usize])
    }
}
