//! The query of a listing.

use std::cmp::Ordering;

/// `?sort=name|size|time&format=html|json`, each optional; `sort=-name` begins with the last, as `order=desc` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingQuery {
    /// By what.
    pub key: SortKey,
    /// The last first.
    pub descending: bool,
    /// The format, where it is asked for.
    pub json: Option<bool>,
}

/// What the query of a listing may have, for people.
pub const QUERY: &str = "A listing takes sort=name, size or time (-name: the last first), order=asc or desc, and \
                         format=html or json.";

/// By what entries are sorted; those alike, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// The bytes of the name.
    #[default]
    Name,
    /// Directories are 0.
    Size,
    /// Of the last change of the bytes.
    Time,
}

impl SortKey {
    const ALL: [Self; 3] = [Self::Name, Self::Size, Self::Time];

    /// As a query names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Time => "time",
        }
    }
}

impl ListingQuery {
    /// Reads a query; none where it has a parameter or a value nobody knows ([`QUERY`] says which there are).
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

    /// Compares two entries, each by what it is sorted by, then by its name.
    pub fn compare(self, a: (i64, &[u8]), b: (i64, &[u8])) -> Ordering {
        if self.descending { b.cmp(&a) } else { a.cmp(&b) }
    }
}
