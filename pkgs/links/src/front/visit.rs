//! Decides a visit, for all protocols.

use std::net::IpAddr;
use std::time::Instant;

use service::logs::LogLimit;

use crate::agent::Agent;
use crate::cache::{Entry, Source, Verdict};
use crate::code::is_well_formed;
use crate::domains::{Domain, DomainId};
use crate::store::Error;

use super::host::{Host, Site};
use super::routes::Target;
use super::worker_context::WorkerContext;

/// Limits the log of links that cannot be read.
pub static UNREADABLE: LogLimit = LogLimit::new();

/// What is known about a visitor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visitor<'v> {
    /// The requested host.
    pub host: Host<'v>,
    /// Whether only the head is requested, which is not counted as a click.
    pub head: bool,
    /// The `Referer` field.
    pub referrer: Option<&'v [u8]>,
    /// The `User-Agent` field.
    pub agent: Option<&'v [u8]>,
    /// The visitor's address, if countries are counted and it is known.
    pub address: Option<IpAddr>,
    /// The hash that the given password matched. The link may have got another one since.
    pub verified: Option<&'v str>,
}

impl Visitor<'_> {
    /// Whether the given password is the one that this entry has now.
    fn unlocks(&self, entry: &Entry) -> bool {
        self.verified.is_some() && self.verified == entry.password_hash()
    }
}

/// What a visit has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The link of a code.
    Link,
    /// Clicks of this link's limit.
    Clicks(i64),
}

/// The outcome of a visit.
pub enum Outcome<'e> {
    /// The redirect of this entry.
    Follow(&'e Entry),
    /// The page that asks for the password of this entry.
    Ask(&'e Entry),
    /// A link with a click limit, for a visitor who only looks: a HEAD request, a crawler or a chat preview. No click
    /// is used, and the target is not shown.
    Limited,
    /// No such link.
    Missing,
    /// Expired or used up.
    Gone,
    /// The store could not be read.
    Unavailable,
    /// The visit has to wait, since the store is a database server.
    Unread(Unread),
    /// The root, which does not redirect.
    Welcome,
    /// The root redirects here.
    Root(&'e str),
    /// No such link; its domain redirects here.
    Elsewhere(&'e str),
    /// No such link; its domain has this page.
    Lost(&'e str),
    /// The favicon redirects here.
    Favicon(&'e str),
    /// `/robots.txt`.
    Robots(&'e str),
}

impl WorkerContext {
    /// Decides and counts a visit, and passes the outcome to `render`.
    pub fn visit<R>(
        &self,
        target: &Target<'_>,
        visitor: &Visitor<'_>,
        render: impl FnOnce(Outcome<'_>) -> R,
    ) -> R {
        self.look(target, visitor, None, render)
    }

    /// Like [`visit`](Self::visit), with the entry if it is known; `None` means that it has to be looked up.
    #[inline]
    pub fn look<R>(
        &self,
        target: &Target<'_>,
        visitor: &Visitor<'_>,
        known: Option<&Entry>,
        render: impl FnOnce(Outcome<'_>) -> R,
    ) -> R {
        let settings = &self.front.settings;
        let domains = self.domains.now();
        let domain = match settings.unknown_host.site(&domains, visitor.host) {
            Site::Default => None,
            Site::Domain(domain) => Some(domain),
            Site::Unknown => return render(Outcome::Missing),
        };
        let code = match target {
            Target::Link(code) if is_well_formed(code) => &**code,
            Target::Link(_) | Target::Nothing => return render(missing(domain)),
            Target::Root => {
                let root = domain.map_or(&settings.root_target, |domain| &domain.root_target);
                return render(root.as_deref().map_or(Outcome::Welcome, Outcome::Root));
            }
            Target::Robots => return render(Outcome::Robots(&settings.robots)),
            Target::Favicon => {
                return render(settings.favicon_target.as_deref().map_or(Outcome::Missing, Outcome::Favicon));
            }
        };
        #[cfg(test)]
        super::tests::strike(code);
        if let Some(entry) = known {
            return self.decide(entry, domain, visitor, render);
        }
        let mut local_cache = self.local_cache.borrow_mut();
        let id = domain.map_or(DomainId::DEFAULT, |domain| domain.id);
        let entry = match local_cache.find_at(id, code, &self.reader) {
            Ok((entry, source)) => {
                match source {
                    Source::Cache => self.metrics.hits.add(1),
                    Source::Store => self.metrics.misses.add(1),
                }
                entry
            }
            Err(Error::Remote) => {
                drop(local_cache);
                return render(Outcome::Unread(Unread::Link));
            }
            Err(error) => {
                if let Some(times) = UNREADABLE.due() {
                    tracing::error!(%error, times, "cannot read a link");
                }
                return render(Outcome::Unavailable);
            }
        };
        self.decide(entry, domain, visitor, render)
    }

    /// Decides a visit to this entry.
    #[inline]
    fn decide<R>(
        &self,
        entry: &Entry,
        domain: Option<&Domain>,
        visitor: &Visitor<'_>,
        render: impl FnOnce(Outcome<'_>) -> R,
    ) -> R {
        match entry.judge(self.now.get()) {
            Verdict::Missing => render(missing(domain)),
            Verdict::Gone => render(Outcome::Gone),
            Verdict::UsedUp => render(self.used_up(entry, visitor)),
            Verdict::Ask if !visitor.unlocks(entry) => render(Outcome::Ask(entry)),
            Verdict::Follow | Verdict::Ask if entry.is_limited() && self.only_looks(visitor) => {
                render(Outcome::Limited)
            }
            Verdict::Follow | Verdict::Ask => {
                if !visitor.head {
                    if !entry.spend() {
                        return render(self.used_up(entry, visitor));
                    }
                    let mut counter = self.counter.borrow_mut();
                    counter.count(entry.link(), visitor.referrer, visitor.agent);
                    if self.front.geoip.is_some() {
                        counter.locate(entry.link(), visitor.address);
                    }
                }
                render(Outcome::Follow(entry))
            }
        }
    }

    /// Whether a visitor only looks at a link without following it. If bots saw the target without using a click,
    /// anybody who claims to be a bot could follow the link forever.
    fn only_looks(&self, visitor: &Visitor<'_>) -> bool {
        let is_bot = |agent| self.counter.borrow_mut().agent(agent) == Agent::Bot;
        visitor.head || visitor.agent.is_some_and(is_bot)
    }

    /// The outcome if no clicks are left. Only a visitor who would follow the link requests more: while one node holds
    /// clicks, others lack them.
    #[cold]
    fn used_up<'e>(&self, entry: &'e Entry, visitor: &Visitor<'_>) -> Outcome<'e> {
        if !entry.is_leased() {
            Outcome::Gone
        } else if entry.password_hash().is_some() && !visitor.unlocks(entry) {
            Outcome::Ask(entry)
        } else if self.only_looks(visitor) {
            Outcome::Limited
        } else if self.front.cache.is_used_up(entry.link(), Instant::now()) {
            Outcome::Gone
        } else {
            Outcome::Unread(Unread::Clicks(entry.link()))
        }
    }
}

/// The outcome if there is no link.
fn missing(domain: Option<&Domain>) -> Outcome<'_> {
    let Some(domain) = domain else { return Outcome::Missing };
    match (&domain.default_target, &domain.not_found_html) {
        (Some(target), _) => Outcome::Elsewhere(target),
        (None, Some(page)) => Outcome::Lost(page),
        (None, None) => Outcome::Missing,
    }
}
