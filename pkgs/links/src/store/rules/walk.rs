//! How far one page of a list looks.
//!
//! Where no index finds what is asked for, links are looked through part by part in the order of the list, until the page is
//! full or its time is over. Then the page is as long as it is, says how many links it looked at, and its cursor goes on
//! behind the last of them: each page is answered in time, and together they miss nothing.

use std::time::{Duration, Instant};

use super::list::{MAX_LIMIT, Place, write_cursor, write_cursor_at};
use crate::link::Link;
use crate::store::{ListQuery, Page, Sort};

/// Where an index finds no more links than this, all of them are read and sorted, which takes some 10 ms. Tests have more
/// than so few.
pub const FEW: usize = if cfg!(test) { 8 } else { 5_000 };

/// How long a page may look unless it is told: as long as people wait, and well before a query is ended as too slow.
const WITHIN: Duration = Duration::from_secs(2);

/// A page that has this much time and was not full after a part in the order of clicks looks through all links as they lie and
/// sorts what it finds: of a million links in a few hundred milliseconds, in place of a part at a time.
const SORTS_WITHIN: Duration = Duration::from_millis(500);

/// Links of the first part: some milliseconds where each is compared, on the slowest of machines.
const FIRST_PART: usize = 1_000;

/// Links of a part at most, so that it is over before the clock was wrong about it for long.
const GREATEST_PART: usize = 200_000;

/// How far a page has looked, and may.
pub struct Walk {
    within: Duration,
    begun: Instant,
    /// When the part under way was begun.
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

    /// One that has time for a single part, of so many links.
    #[cfg(test)]
    pub fn of_one_part(rows: usize) -> Self {
        let walk = Self::of(&ListQuery { within: Some(Duration::ZERO), ..ListQuery::default() });
        Self { rows, grows: false, ..walk }
    }

    /// One that has time, in parts of so many links.
    #[cfg(test)]
    pub fn in_parts_of(rows: usize) -> Self {
        Self { within: Duration::MAX, rows, grows: false, ..Self::of(&ListQuery::default()) }
    }

    /// How many links the next part has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What comes after a part that ends at `until`, or after the rest of a stretch where that is none. `links` are those found
    /// so far.
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

    /// Whether what is behind this place is found sooner where all of it is sorted: from where on.
    fn sorts_from(&self, stretch: Stretch, place: &[Place]) -> Option<Vec<Place>> {
        let behind = match stretch {
            Stretch::Whole => return None,
            Stretch::Clicked => place.to_vec(),
            Stretch::Unclicked => [&[Place::Number(0)], place].concat(),
        };
        Some(behind).filter(|_| self.sorts)
    }

    /// A whole part was looked at: whether there is time for another that takes as long. It is as great as half of the time left
    /// allows.
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

/// What comes next on a page.
pub enum Next {
    /// Nothing: it is full, or its time is over.
    Page(Page),
    /// All that is behind this place, sorted, and then the page is done.
    Sorted(Vec<Place>),
    /// The part behind this place.
    Part(Vec<Place>),
    /// The next stretch.
    Stretch,
}

/// How many links a page may have.
pub fn limit_of(query: &ListQuery) -> usize {
    query.limit.clamp(1, MAX_LIMIT)
}

/// A page of these links, of which one more than its limit tells that there is a next one.
pub fn page_of(mut links: Vec<Link>, limit: usize, query: &ListQuery) -> Page {
    let more = links.len() > limit;
    links.truncate(limit);
    let next = links.last().filter(|_| more).map(|last| write_cursor(last, query));
    Page { links, next, looked_at: None }
}

/// A stretch of a list, which an index has in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// All of it.
    Whole,
    /// Links that have clicks, by these.
    Clicked,
    /// Links that have none, by id.
    Unclicked,
}

/// The stretches of a list that are behind a cursor's place, in their order, and the place in the first of them.
pub fn stretches(query: &ListQuery, last: Option<Vec<Place>>) -> Vec<(Stretch, Option<Vec<Place>>)> {
    if query.sort != Sort::Clicks {
        return vec![(Stretch::Whole, last)];
    }
    let (clicked, unclicked) = ((Stretch::Clicked, None), (Stretch::Unclicked, None));
    let all = if query.descending { [clicked, unclicked] } else { [unclicked, clicked] };
    let Some(mut last) = last else { return Vec::from(all) };
    let at = match last.first() {
        Some(Place::Number(clicks)) if *clicks > 0 => Stretch::Clicked,
        // By id alone.
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
