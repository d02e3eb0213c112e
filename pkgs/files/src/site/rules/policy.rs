//! The combined rules for one path.

use std::ops::RangeInclusive;
use std::rc::Rc;

use super::archive::ArchivePolicy;
use crate::site::access::AccessControl;

/// The combined rules for one path.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Headers of every answer with the file, each with its line end.
    pub fields: String,
    /// Who may read the answers across origins.
    pub cors: Cors,
    /// Whether a directory here is listed.
    pub listing: bool,
    /// Whether answers say how long they took.
    pub server_timing: bool,
    /// Which archives of a directory here are available.
    pub archive: ArchivePolicy,
    /// Who has access; none if everybody has.
    pub access: Option<Rc<AccessControl>>,
    /// The sizes of texts that are compressed, in bytes.
    pub compressed: Option<RangeInclusive<u64>>,
}

/// Whose scripts may read an answer (Fetch, section 3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// Those of the same origin.
    #[default]
    Same,
    /// All.
    Any,
    /// Those of these origins as well.
    Listed(Vec<String>),
}
