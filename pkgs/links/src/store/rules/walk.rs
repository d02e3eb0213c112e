//! How far one page of a list searches.
//!
//! If no index finds what is requested, links are examined part by part in the order of the list, until the page is
//! full or its time is up. The page then has what was found, says how many links were examined, and its cursor
//! continues after them. So each page is answered in time, and together they miss nothing.

use std::time::{Duration, Instant};

use super::list::{MAX_LIMIT, Place, write_cursor, write_cursor_at};
use crate::link::Link;
use crate::store::{ListQuery, Page, Sort};

/// Up to this many links from an index are all read and sorted, which takes some 10 ms. Tests have more than a few.
pub const FEW: usize = if cfg!(test) { 8 } else { 5_000 };

/// The default time of a page: as long as people wait, and well before a query fails as too slow.
const WITHIN: Duration = Duration::from_secs(2);

/// A page with this much time left that is not full after a part in the order of clicks reads all links as they are
/// stored, and sorts what it finds. For a million links that takes a few hundred milliseconds, and replaces going part
/// by part.
const SORTS_WITHIN: Duration = Duration::from_millis(500);

/// Links of the first part: some milliseconds if each is compared, on the slowest machine.
const FIRST_PART: usize = 1_000;

/// The most links of a part, so that a wrong estimate of its time does not last long.
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

    /// How many links the next part has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What follows a part that ends at `until`, or the rest of a stretch if that is none. `links` are those found so
    /// far.
    pub fn after(
        &mut self,
        stretch: Stretch,
        until: Option<Vec<Place>>,
        links: &mut Vec<Link>,
        query: &ListQuery,
    ) -> Next {
        let limit = limit_of(query);
        if links.len() > limit {
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

    /// If everything after this place is found sooner by sorting it all: where that starts.
    fn sorts_from(&self, stretch: Stretch, place: &[Place]) -> Option<Vec<Place>> {
        let behind = match stretch {
            Stretch::Whole => return None,
            Stretch::Clicked => place.to_vec(),
            Stretch::Unclicked => [&[Place::Number(0)], place].concat(),
        };
        Some(behind).filter(|_| self.sorts)
    }

    /// After a whole part: whether there is time for another. Its size uses at most half of the time left.
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
    /// None: it is full, or its time is up.
    Page(Page),
    /// Everything after this place, sorted; the page is then done.
    Sorted(Vec<Place>),
    /// The part after this place.
    Part(Vec<Place>),
    /// The next stretch.
    Stretch,
}

/// The most links on a page.
pub fn limit_of(query: &ListQuery) -> usize {
    query.limit.clamp(1, MAX_LIMIT)
}

/// A page of these links. One more than its limit means that there is a next page.
pub fn page_of(mut links: Vec<Link>, limit: usize, query: &ListQuery) -> Page {
    let more = links.len() > limit;
    links.truncate(limit);
    let next = links.last().filter(|_| more).map(|last| write_cursor(last, query));
    Page { links, next, looked_at: None }
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

/// The stretches of a list after a cursor's place, in order, with the place in the first of them.
pub fn stretches(query: &ListQuery, last: Option<Vec<Place>>) -> Vec<(Stretch, Option<Vec<Place>>)> {
    if query.sort != Sort::Clicks {
        return vec![(Stretch::Whole, last)];
    }
    let (clicked, unclicked) = ((Stretch::Clicked, None), (Stretch::Unclicked, None));
    let all = if query.descending { [clicked, unclicked] } else { [unclicked, clicked] };
    let Some(mut last) = last else { return Vec::from(all) };
    let at = match last.first() {
        Some(Place::Number(clicks)) if *clicks > 0 => Stretch::Clicked,
        // Ordered by id alone.
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
