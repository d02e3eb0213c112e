//! Cache entries: what is known about a code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use triomphe::ThinArc;

use crate::link::{RedirectStatus, Status};
use crate::store::{LEASED, Route};
use crate::when::Timestamp;

use super::click_limits::ClickLimits;

/// The overhead of the cache and the allocator per entry, in bytes. Measured by `cargo bench --bench redirect`, which
/// prints the resident bytes per cached link.
const OVERHEAD_BYTES: u64 = 160;

/// What is known about a code. It is one shared allocation, with the text directly after the rest, so that a visit
/// reads neighbouring lines of memory.
#[derive(Clone)]
pub struct Entry(ThinArc<Head, u8>);

/// An entry without its text.
struct Head {
    stamp: u32,
    key_bytes: u8,
    /// The redirect's status; `None` if there is no link with this code.
    redirect: Option<RedirectStatus>,
    forward_query: bool,
    link: i64,
    rules: Option<Box<Rules>>,
}

/// Properties that only some links have.
pub struct Rules {
    /// 404 before this time.
    pub not_before: Option<Timestamp>,
    /// 410 from this time on.
    pub expires_at: Option<Timestamp>,
    /// 410 after this many clicks; with the clicks so far, shared by all workers.
    pub limit: Option<(u64, Arc<AtomicU64>)>,
    /// The argon2id hash of the password.
    pub password_hash: Option<Box<str>>,
}

/// The answer to a visit.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The redirect.
    Follow,
    /// The page that asks for the password.
    Ask,
    /// No such link, or not yet.
    Missing,
    /// Expired.
    Gone,
    /// No clicks are left.
    UsedUp,
}

impl Entry {
    pub(super) fn new(key: &[u8], stamp: u32, route: Option<Route>, limits: &ClickLimits) -> Self {
        let key_bytes = u8::try_from(key.len()).expect("keys are at most 73 bytes");
        let Some(route) = route.filter(|route| route.status == Status::Active) else {
            let head = Head { stamp, key_bytes, redirect: None, forward_query: false, link: 0, rules: None };
            return Self(ThinArc::from_header_and_slice(head, key));
        };
        let limit = route.max_clicks.map(|most| (most, limits.counter(route.id, route.clicks)));
        let plain = route.not_before.is_none()
            && route.expires_at.is_none()
            && limit.is_none()
            && route.password_hash.is_none();
        let rules = (!plain).then(|| {
            Box::new(Rules {
                not_before: route.not_before,
                expires_at: route.expires_at,
                limit,
                password_hash: route.password_hash.map(String::into_boxed_str),
            })
        });
        let head = Head {
            stamp,
            key_bytes,
            redirect: Some(route.redirect),
            forward_query: route.forward_query,
            link: route.id,
            rules,
        };
        let text = [key, route.target.as_bytes()].concat();
        Self(ThinArc::from_header_and_slice(head, &text))
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    /// The key, then the target.
    pub(super) fn text(&self) -> &[u8] {
        &self.0.slice
    }

    /// Whether this is the store's content for `key` as of `stamp`.
    pub(super) fn is(&self, key: &[u8], stamp: u32) -> bool {
        self.head().stamp == stamp && self.key() == key
    }

    /// The entry's [key](super::with_key).
    pub(super) fn key(&self) -> &[u8] {
        &self.text()[..usize::from(self.head().key_bytes)]
    }

    /// The redirect's target, in UTF-8; empty if there is no link.
    pub fn target(&self) -> &[u8] {
        &self.text()[usize::from(self.head().key_bytes)..]
    }

    /// The redirect's status.
    pub fn redirect(&self) -> RedirectStatus {
        self.head().redirect.unwrap_or_default()
    }

    /// Whether the visit's query string is appended.
    pub fn forward_query(&self) -> bool {
        self.head().forward_query
    }

    /// The link's id in the store.
    pub fn link(&self) -> i64 {
        self.head().link
    }

    /// The hash that a password must match.
    pub fn password_hash(&self) -> Option<&str> {
        self.head().rules.as_ref()?.password_hash.as_deref()
    }

    /// Decides a visit at `now`. Does not check the click limit: see [`Entry::spend`].
    pub fn judge(&self, now: Timestamp) -> Verdict {
        if self.head().redirect.is_none() {
            return Verdict::Missing;
        }
        let Some(rules) = &self.head().rules else { return Verdict::Follow };
        if rules.not_before.is_some_and(|start| now < start) {
            Verdict::Missing
        } else if rules.expires_at.is_some_and(|end| now >= end) {
            Verdict::Gone
        } else if rules.used_up() {
            Verdict::UsedUp
        } else if rules.password_hash.is_some() {
            Verdict::Ask
        } else {
            Verdict::Follow
        }
    }

    /// Whether it has a click limit.
    pub fn is_limited(&self) -> bool {
        self.head().rules.as_ref().is_some_and(|rules| rules.limit.is_some())
    }

    /// Whether only an edit ends its redirect. Otherwise, a client has to ask again each time: the link expires, has a
    /// click limit, or asks for a password.
    #[inline]
    pub fn lasts(&self) -> bool {
        let Some(rules) = &self.head().rules else { return true };
        rules.expires_at.is_none() && rules.limit.is_none() && rules.password_hash.is_none()
    }

    /// Whether its clicks are granted a few at a time ([`LEASED`]).
    pub fn is_leased(&self) -> bool {
        let limit = self.head().rules.as_ref().and_then(|rules| rules.limit.as_ref());
        limit.is_some_and(|(most, _)| *most == LEASED)
    }

    /// Uses one click of the limit. False if none was left.
    pub fn spend(&self) -> bool {
        match self.head().rules.as_ref().and_then(|rules| rules.limit.as_ref()) {
            None => true,
            Some((most, clicks)) => clicks
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < *most).then(|| n + 1))
                .is_ok(),
        }
    }

    pub(super) fn weight(&self) -> u64 {
        let rules = self.head().rules.as_ref().map_or(0, |rules| {
            size_of::<Rules>() + rules.password_hash.as_ref().map_or(0, |hash| hash.len())
        });
        OVERHEAD_BYTES + (self.text().len() + rules) as u64
    }
}

impl Rules {
    fn used_up(&self) -> bool {
        self.limit.as_ref().is_some_and(|(most, clicks)| clicks.load(Ordering::Relaxed) >= *most)
    }
}
