//! What the lists of links and of users have in common: their order, and one page after the other.

use maud::{Markup, html};

use crate::fields::{Fields, query};

/// A list of which visitors see one page at a time.
pub(super) struct List {
    /// Its path.
    pub(super) path: &'static str,
    /// Parameters that filter and sort it. They stay the same from page to page.
    pub(super) kept: &'static [&'static str],
    /// The default order.
    pub(super) order: &'static str,
}

/// A column by which a list can be sorted.
pub(super) struct Column {
    /// Its name in an order.
    pub(super) name: &'static str,
    /// Its heading.
    pub(super) words: &'static str,
    /// The order that its heading leads to, unless the list is already sorted by it.
    pub(super) first: &'static str,
    /// How its heading is shown.
    pub(super) class: Option<&'static str>,
}

impl List {
    /// The address of the list with these parameters in addition to, or instead of, those that are kept.
    pub(super) fn place(&self, fields: &Fields, other: &[(&str, &str)]) -> String {
        let kept = self.kept.iter().filter(|kept| other.iter().all(|(name, _)| name != *kept));
        let kept = kept.map(|&name| (name, fields.get(name)));
        format!("{}?{}", self.path, query(&kept.chain(other.iter().copied()).collect::<Vec<_>>()))
    }

    /// The heading of a sortable column. It is a link that sorts by the column, or reverses the order.
    pub(super) fn heading(&self, fields: &Fields, column: &Column) -> Markup {
        let Column { name, words, first, class } = *column;
        let now = fields.some("sort").unwrap_or(self.order);
        let (sorted, next) = match (now == name, now.strip_prefix('-') == Some(name)) {
            (true, _) => (Some("ascending"), format!("-{name}")),
            (_, true) => (Some("descending"), name.to_owned()),
            _ => (None, first.to_owned()),
        };
        let place = self.place(fields, &[("sort", &next)]);
        html! { th scope="col" aria-sort=[sorted] class=[class] { a href=(place) { (words) } } }
    }

    /// Links to the first page and to the one that begins at `next`.
    pub(super) fn pager(&self, fields: &Fields, next: Option<&str>) -> Markup {
        let at = |cursor: &str| self.place(fields, &[("cursor", cursor)]);
        html! {
            nav.pager aria-label="Pages" {
                @if fields.some("cursor").is_some() { a.button href=(at("")) { "First page" } }
                @if let Some(next) = next { a.button rel="next" href=(at(next)) { "Next page" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_sorts_by_its_column_first_and_then_reverses_the_order() {
        let list = List { path: "/links", kept: &["q", "sort"], order: "-created" };
        let column = Column { name: "clicks", words: "Clicks", first: "-clicks", class: None };
        for (asked, sorted, next) in [
            ("q=a&cursor=b", None, "-clicks"),
            ("q=a&sort=-clicks", Some("descending"), "clicks"),
            ("q=a&sort=clicks", Some("ascending"), "-clicks"),
        ] {
            let fields = Fields::parse(asked.as_bytes());
            let heading = list.heading(&fields, &column).into_string();
            assert!(heading.contains(&format!("\"/links?q=a&amp;sort={next}\"")), "{heading}");
            let sorted = sorted.map(|sorted| format!("aria-sort=\"{sorted}\""));
            assert_eq!(heading.contains("aria-sort"), sorted.is_some(), "{heading}");
            assert!(sorted.is_none_or(|sorted| heading.contains(&sorted)), "{heading}");
        }
    }
}
