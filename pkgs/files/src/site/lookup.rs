//! Questions to a site that may have to wait for the disk or the origin.

use super::Site;
use super::root::{CodingLookup, Error, Found, LookupMode};

/// What is looked up.
#[derive(Debug)]
pub enum Lookup {
    /// This path, and these of its encodings.
    One(Vec<u8>, CodingLookup),
    /// The first of these paths that exists.
    First {
        /// The paths.
        paths: Vec<Vec<u8>>,
        /// The requested path.
        asked: Vec<u8>,
    },
}

impl Lookup {
    /// The requested path.
    pub fn asked(&self) -> &[u8] {
        match self {
            Self::One(asked, _) | Self::First { asked, .. } => asked,
        }
    }

    /// Looks it up. Returns the path that counts, and what it names.
    pub fn find(&self, site: &Site, mode: LookupMode) -> (Vec<u8>, Result<Found, Error>) {
        match self {
            Self::One(path, codings) => (path.clone(), site.find(path, mode, *codings)),
            Self::First { paths, asked } => site.first(paths.iter().cloned(), asked, mode),
        }
    }
}
