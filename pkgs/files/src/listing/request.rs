//! What is to be listed, and what is told of an entry.

use crate::http::listing_query::ListingQuery;

/// What is to be listed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRequest {
    /// The directory, below the root, with its final slash.
    pub path: Vec<u8>,
    /// In which order.
    pub order: ListingQuery,
    /// As JSON instead of a page.
    pub json: bool,
    /// Whether names with a dot in front are shown.
    pub hidden: bool,
    /// Whether blocks are sent as chunks (RFC 9112, section 7.1).
    pub chunked: bool,
}

/// What is told of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Whether it is a directory.
    pub directory: bool,
    /// In bytes; 0 of a directory.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: i64,
}
