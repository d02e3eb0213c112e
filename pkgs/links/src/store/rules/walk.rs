//! How far one page of a list searches.
//!
//! If no index finds what is requested, links are examined part by part in the order of the list, until the page is
//! full or its time is up. The page then contains the links found so far and the number of links examined. Its cursor
//! continues after them. So each page is answered in time, and all pages together miss no link.

use std::time::{Duration, Instant};

use super::list::{MAX_LIMIT, Place, write_cursor, write_cursor_at};
use crate::link::Link;
use crate::store::{ListQuery, Page, Sort};

/// If an index finds at most this many links, all are read and sorted, which takes some 10 ms. Tests need few links to
/// exceed it.
pub const FEW: usize = if cfg!(test) { 8 } else { 5_000 };

/// With more links than this, none are sorted at once. That would take a second or more, and fail as too slow from some
/// ten million on. Tests need few links to exceed it.
const MANY: i64 = if cfg!(test) { 64 } else { 2_000_000 };

/// The default time of a page. People wait this long, and it ends well before a query fails as too slow.
const WITHIN: Duration = Duration::from_secs(2);

/// A page needs at least this much time in total to sort. If such a page is in the order of clicks and not full after a
/// part, it reads all remaining links as they are stored, and sorts those that match. For a million links this takes a
/// few hundred milliseconds, instead of going part by part. See also [`MANY`].
const SORTS_WITHIN: Duration = Duration::from_millis(500);

/// The most bytes of text on a page, but for the link that exceeds them, which is its last one. Each page is in memory
/// as a whole until its client has read it; with the longest targets, it would have 8 MiB.
pub const PAGE_BYTES: usize = 1024 * 1024;

/// Links of the first part. Comparing each takes some milliseconds on the slowest machine.
const FIRST_PART: usize = 1_000;

/// The most links of a part, so that a wrong estimate of its duration has a limited effect.
const GREATEST_PART: usize = 200_000;

/// How far a page has searched, and its limits.
pub struct Walk {
    within: Duration,
    begun: Instant,
    /// When the current part was started.
    part: Instant,
    rows: usize,
    grows: bool,
    sorts: bool,
    looked_at: u64,
}

impl Walk {
    pub fn of(query: &ListQuery) -> Self {
        let now = Instant::now();
        let within = query.within.unwrap_or(WITHIN).min(WITHIN);
        let sorts = within >= SORTS_WITHIN;
        Self { within, begun: now, part: now, rows: FIRST_PART, grows: true, sorts, looked_at: 0 }
    }

    /// A walk with time for a single part of this many links.
    #[cfg(test)]
    pub fn of_one_part(rows: usize) -> Self {
        let walk = Self::of(&ListQuery { within: Some(Duration::ZERO), ..ListQuery::default() });
        Self { rows, grows: false, ..walk }
    }

    /// A walk with time, in parts of this many links.
    #[cfg(test)]
    pub fn in_parts_of(rows: usize) -> Self {
        Self { within: Duration::MAX, rows, grows: false, ..Self::of(&ListQuery::default()) }
    }

    /// The same walk in a database whose greatest id is `newest`. It is found at once, and there are no more links.
    pub fn up_to(self, newest: i64) -> Self {
        Self { sorts: self.sorts && newest <= MANY, ..self }
    }

    /// How many links the next part has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Decides what follows a part that ends at `until`; `None` means the rest of the stretch was read. `links` are
    /// those found so far.
    pub fn after(
        &mut self,
        stretch: Stretch,
        until: Option<Vec<Place>>,
        links: &mut Vec<Link>,
        query: &ListQuery,
    ) -> Next {
        let limit = limit_of(query);
        if links.len() > fitting(links, limit) {
            return Next::Page(page_of(std::mem::take(links), limit, query));
        }
        let Some(until) = until else { return Next::Stretch };
        if !self.goes_on() {
            let (links, next) = (std::mem::take(links), write_cursor_at(&until, query));
            return Next::Page(Page { links, next, looked_at: Some(self.looked_at) });
        }
        match self.sorts_from(stretch, &until) {
            Some(behind) => Next::Sorted(behind),
            None => Next::Part(until),
        }
    }

    /// Where to start sorting, if sorting everything after this place is faster than going part by part.
    fn sorts_from(&self, stretch: Stretch, place: &[Place]) -> Option<Vec<Place>> {
        let behind = match stretch {
            Stretch::Whole => return None,
            Stretch::Clicked => place.to_vec(),
            Stretch::Unclicked => [&[Place::Number(0)], place].concat(),
        };
        Some(behind).filter(|_| self.sorts)
    }

    /// Called after a whole part. Returns whether there is time for another, whose size is chosen to use at most half
    /// of the time left.
    fn goes_on(&mut self) -> bool {
        self.looked_at += self.rows as u64;
        let now = Instant::now();
        let (took, left) = (now - self.part, self.within.saturating_sub(now - self.begun));
        if self.grows {
            let fit = self.rows as f64 * left.as_secs_f64() / 2.0 / took.as_secs_f64().max(1e-6);
            self.rows = (fit as usize).min(4 * self.rows).clamp(FIRST_PART, GREATEST_PART);
        }
        self.part = now;
        left > took
    }
}

/// The next step for a page.
pub enum Next {
    /// Finished: the page is full, or its time is up.
    Page(Page),
    /// Read everything after this place, sorted. The page is then done.
    Sorted(Vec<Place>),
    /// Read the part after this place.
    Part(Vec<Place>),
    /// Go to the next stretch.
    Stretch,
}

/// The most links on a page.
pub fn limit_of(query: &ListQuery) -> usize {
    query.limit.clamp(1, MAX_LIMIT)
}

/// Makes a page of these links: at most `limit`, and no more than [`PAGE_BYTES`] allow. If there are more, the page
/// gets a cursor.
pub fn page_of(mut links: Vec<Link>, limit: usize, query: &ListQuery) -> Page {
    let fitting = fitting(&links, limit);
    let more = links.len() > fitting;
    links.truncate(fitting);
    let next = links.last().filter(|_| more).map(|last| write_cursor(last, query));
    Page { links, next, looked_at: None }
}

/// Adds links as they are read, until there is one more than [`PAGE_BYTES`] allow on a page. Returns whether there is.
pub fn add<E>(links: &mut Vec<Link>, read: impl Iterator<Item = Result<Link, E>>) -> Result<bool, E> {
    let mut bytes = 0;
    for link in read {
        let link = link?;
        let is_more = bytes > PAGE_BYTES;
        bytes += text_bytes(&link);
        links.push(link);
        if is_more {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many of these links, and of further ones, a page has: at least one.
fn fitting(links: &[Link], limit: usize) -> usize {
    let mut bytes = 0;
    let last = links.iter().position(|link| {
        bytes += text_bytes(link);
        bytes > PAGE_BYTES
    });
    last.map_or(limit, |last| limit.min(last + 1))
}

/// The bytes of a link's texts.
fn text_bytes(link: &Link) -> usize {
    let texts = [&link.domain, &link.title].into_iter().flatten().chain([&link.code, &link.target]);
    texts.chain(&link.tags).map(String::len).sum()
}

/// A stretch of a list, in an index's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// The whole list.
    Whole,
    /// Links with clicks, ordered by clicks.
    Clicked,
    /// Links without clicks, ordered by id.
    Unclicked,
}

/// The stretches of a list after a cursor's place, in order. The first of them starts at that place.
pub fn stretches(query: &ListQuery, last: Option<Vec<Place>>) -> Vec<(Stretch, Option<Vec<Place>>)> {
    if query.sort != Sort::Clicks {
        return vec![(Stretch::Whole, last)];
    }
    let (clicked, unclicked) = ((Stretch::Clicked, None), (Stretch::Unclicked, None));
    let all = if query.descending { [clicked, unclicked] } else { [unclicked, clicked] };
    let Some(mut last) = last else { return Vec::from(all) };
    let at = match last.first() {
        Some(Place::Number(clicks)) if *clicks > 0 => Stretch::Clicked,
        // Links without clicks are ordered by id alone.
        _ => {
            last.remove(0);
            Stretch::Unclicked
        }
    };
    let mut behind: Vec<_> = all.into_iter().skip_while(|(stretch, _)| *stretch != at).collect();
    if let Some((_, place)) = behind.first_mut() {
        *place = Some(last);
    }
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_sorted_at_once_unless_they_are_too_many() {
        let query = ListQuery { sort: Sort::Clicks, ..ListQuery::default() };
        for (newest, is_sorted) in [(MANY, true), (MANY + 1, false)] {
            let until = vec![Place::Number(3), Place::Number(7)];
            let mut walk = Walk::in_parts_of(4).up_to(newest);
            match walk.after(Stretch::Clicked, Some(until.clone()), &mut Vec::new(), &query) {
                Next::Sorted(behind) => assert!(is_sorted && behind == until),
                Next::Part(from) => assert!(!is_sorted && from == until),
                Next::Page(_) | Next::Stretch => panic!("there is time, and more to read"),
            }
        }
    }

    #[test]
    fn no_more_is_read_than_the_link_behind_a_page() {
        let at = "2030-01-01T00:00:00Z";
        let link: Link = serde_json::from_value(serde_json::json!({
            "code": "a", "target": "x".repeat(7_999), "title": null, "tags": [], "status": "active",
            "redirect": 307, "forward_query": false, "protected": false, "not_before": null, "expires_at": null,
            "max_clicks": null, "clicks": 0, "created_at": at, "updated_at": at,
        }))
        .expect("a link");
        let mut links = Vec::new();
        let mut read = 0;
        let rows = std::iter::repeat_with(|| {
            read += 1;
            Ok::<_, ()>(link.clone())
        });
        assert_eq!(add(&mut links, rows.take(MAX_LIMIT + 1)), Ok(true));
        assert_eq!((read, fitting(&links, MAX_LIMIT)), (links.len(), links.len() - 1));
        assert_eq!(links.len(), PAGE_BYTES / 8_000 + 2);
    }
}
