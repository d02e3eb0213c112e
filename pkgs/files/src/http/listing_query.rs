//! The query of a listing.

use std::cmp::Ordering;

/// `?sort=name|size|time&format=html|json`, each optional. `sort=-name` reverses the order, as `order=desc` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingQuery {
    /// The sort key.
    pub key: SortKey,
    /// Last first.
    pub descending: bool,
    /// The format, if one is requested.
    pub json: Option<bool>,
}

/// The parameters of a listing, for people.
pub const QUERY: &str = "A listing takes sort=name, size or time (-name: the last first), order=asc or desc, and \
                         format=html or json.";

/// The sort key of entries; equal ones are sorted by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// The bytes of the name.
    #[default]
    Name,
    /// Directories are 0.
    Size,
    /// The last change of the content.
    Time,
}

impl SortKey {
    const ALL: [Self; 3] = [Self::Name, Self::Size, Self::Time];

    /// Its name in a query.
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Time => "time",
        }
    }
}

impl ListingQuery {
    /// Reads a query; none if it has an unknown parameter or value ([`QUERY`] lists them).
    pub fn parse(query: &str) -> Option<Self> {
        let mut order = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("sort", key) => {
                    let (key, descending) = key.strip_prefix('-').map_or((key, false), |key| (key, true));
                    order.key = SortKey::ALL.into_iter().find(|known| known.name() == key)?;
                    order.descending |= descending;
                }
                ("order", "asc") => order.descending = false,
                ("order", "desc") => order.descending = true,
                ("format", "html") => order.json = Some(false),
                ("format", "json") => order.json = Some(true),
                _ => return None,
            }
        }
        Some(order)
    }

    /// Compares two entries by their sort keys, then by name.
    pub fn compare(self, a: (i64, &[u8]), b: (i64, &[u8])) -> Ordering {
        if self.descending { b.cmp(&a) } else { a.cmp(&b) }
    }
}
