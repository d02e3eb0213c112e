//! The requested listing, and what is shown about an entry.

use crate::http::listing_query::ListingQuery;

/// What to list, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRequest {
    /// The directory, below the root, with its final slash.
    pub path: Vec<u8>,
    /// The order.
    pub order: ListingQuery,
    /// Whether it is JSON instead of a page.
    pub json: bool,
    /// Whether names that start with a dot are shown.
    pub hidden: bool,
    /// Whether blocks are sent as chunks (RFC 9112, section 7.1).
    pub chunked: bool,
}

/// What is shown about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Whether it is a directory.
    pub directory: bool,
    /// In bytes; 0 for a directory.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: i64,
}
