//! Deciding a visit: what all listeners ask.

use std::net::IpAddr;

use crate::agent::Agent;
use crate::cache::{Entry, Source, Verdict};
use crate::code::is_well_formed;
use crate::domains::{Domain, DomainId};
use crate::store::Error;

use super::host::{Host, Site};
use super::routes::Target;
use super::worker_context::WorkerContext;

/// What is known of a visitor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visitor<'v> {
    /// Which host is asked.
    pub host: Host<'v>,
    /// Only the head is asked for; not counted as a click.
    pub head: bool,
    /// The `Referer` field.
    pub referrer: Option<&'v [u8]>,
    /// The `User-Agent` field.
    pub agent: Option<&'v [u8]>,
    /// Where the visitor is, where countries are told apart and it is known.
    pub address: Option<IpAddr>,
    /// Whether the link's password was given and right.
    pub trusted: bool,
}

/// What has to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// What there is of a code.
    Link,
    /// Clicks of this link's limit.
    Clicks(i64),
}

/// What a visit comes to.
pub enum Outcome<'e> {
    /// The redirect of this entry.
    Follow(&'e Entry),
    /// The page that asks for the password of this entry.
    Ask(&'e Entry),
    /// A link that answers so often and no more, for a visitor who only looks: by HEAD, or as crawlers and previews of
    /// chats do. It is neither spent nor shown where it leads.
    Limited,
    /// No such link.
    Missing,
    /// Expired or used up.
    Gone,
    /// The store could not be read.
    Unavailable,
    /// What it comes to has to be waited for: the store is not on this machine's disk.
    Unread(Unread),
    /// The root, which leads nowhere.
    Welcome,
    /// The root redirects here.
    Root(&'e str),
    /// No such link, and its domain sends visitors here.
    Elsewhere(&'e str),
    /// No such link, and its domain has this page for that.
    Lost(&'e str),
    /// The favicon redirects here.
    Favicon(&'e str),
    /// `/robots.txt`.
    Robots(&'e str),
}

impl WorkerContext {
    /// Decides a visit, counts it, and hands what comes of it to `render`.
    pub fn visit<R>(
        &self,
        target: &Target<'_>,
        visitor: &Visitor<'_>,
        render: impl FnOnce(Outcome<'_>) -> R,
    ) -> R {
        self.look(target, visitor, None, render)
    }

    /// The same where it is known what there is of the link; none where it is looked for.
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
                tracing::error!(%error, "cannot read a link");
                return render(Outcome::Unavailable);
            }
        };
        self.decide(entry, domain, visitor, render)
    }

    /// Decides a visit to what there is of a code.
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
            Verdict::UsedUp => render(used_up(entry)),
            Verdict::Ask if !visitor.trusted => render(Outcome::Ask(entry)),
            Verdict::Follow | Verdict::Ask if entry.is_limited() && self.only_looks(visitor) => {
                render(Outcome::Limited)
            }
            Verdict::Follow | Verdict::Ask => {
                if !visitor.head {
                    if !entry.spend() {
                        return render(used_up(entry));
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

    /// Whether a visitor looks at a link without following it. Were bots shown the target without spending a click,
    /// whoever calls himself one could follow the link for ever.
    fn only_looks(&self, visitor: &Visitor<'_>) -> bool {
        let is_bot = |agent| self.counter.borrow_mut().agent(agent) == Agent::Bot;
        visitor.head || visitor.agent.is_some_and(is_bot)
    }
}

/// What a visit comes to where nothing is left of the clicks.
#[cold]
fn used_up(entry: &Entry) -> Outcome<'_> {
    match entry.is_leased() {
        true => Outcome::Unread(Unread::Clicks(entry.link())),
        false => Outcome::Gone,
    }
}

/// What a visit comes to where there is no link.
fn missing(domain: Option<&Domain>) -> Outcome<'_> {
    let Some(domain) = domain else { return Outcome::Missing };
    match (&domain.default_target, &domain.not_found_html) {
        (Some(target), _) => Outcome::Elsewhere(target),
        (None, Some(page)) => Outcome::Lost(page),
        (None, None) => Outcome::Missing,
    }
}
