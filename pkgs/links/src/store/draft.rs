//! Links and edits that were checked on the caller's thread, ready for the writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domains::{DEFAULT, Domain, DomainId, InDomains};
use crate::invalid::InvalidField;
use crate::link::{self, Link, LinkPatch, ManyPatch, NewLink, RedirectStatus, Status};
use crate::when::Timestamp;
use service::password;

use crate::store::rules::links::end_of;
use crate::store::{Error, Policy, Record};

/// A link that follows every rule, except that its code may be taken.
pub(in crate::store) struct Draft {
    pub domain: Option<Arc<Domain>>,
    pub code: Option<String>,
    pub target: String,
    pub title: Option<String>,
    pub tags: Vec<String>,
    pub status: Status,
    pub redirect: RedirectStatus,
    pub forward_query: bool,
    pub password_hash: Option<String>,
    pub not_before: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub max_clicks: Option<u64>,
    pub clicks: u64,
    pub created_at: Timestamp,
}

impl Draft {
    /// Checks a link of a client that may use the domains `within`. They are compared by id here, where the name is
    /// resolved for the last time: since the request was let in, the domain may have been deleted and created again.
    pub fn new(mut link: NewLink, policy: &Policy, within: &InDomains) -> Result<Self, Error> {
        if let Some(code) = &link.code {
            policy.codes.validate(code)?;
        }
        link.check()?;
        let domains = policy.domains.now();
        let domain = match (domains.named(link.domain.as_deref()), within) {
            (Ok(domain), _) if within.has(domain.map_or(DomainId::DEFAULT, |domain| domain.id)) => {
                domain.cloned()
            }
            (Err(unknown), InDomains::All) => return Err(Error::field("domain", unknown.to_string())),
            // The error does not reveal whether another domain of this name exists.
            _ => return Err(Error::OtherDomain(link.domain.unwrap_or_else(|| DEFAULT.to_owned()))),
        };
        Ok(Self {
            domain,
            target: policy.target(&link.target)?,
            code: link.code,
            title: link.title,
            tags: link.tags,
            status: link.status,
            redirect: link.redirect,
            forward_query: link.forward_query,
            max_clicks: link.max_clicks,
            not_before: link.not_before,
            expires_at: link.expires_at,
            clicks: 0,
            created_at: Timestamp::now(),
            // Last, since it takes longest.
            password_hash: link.password.as_deref().map(hash).transpose()?,
        })
    }

    /// The domain's id.
    pub fn domain_id(&self) -> DomainId {
        self.domain.as_ref().map_or(DomainId::DEFAULT, |domain| domain.id)
    }

    /// The link, with this id and code.
    pub fn into_link(self, id: i64, code: String) -> Link {
        Link {
            id,
            domain_id: self.domain_id(),
            domain: self.domain.map(|domain| domain.host.clone()),
            code,
            target: self.target,
            title: self.title,
            tags: self.tags,
            status: self.status,
            redirect: self.redirect,
            forward_query: self.forward_query,
            protected: self.password_hash.is_some(),
            password_end: self.password_hash.as_deref().map(end_of),
            not_before: self.not_before,
            expires_at: self.expires_at,
            max_clicks: self.max_clicks,
            clicks: self.clicks,
            created_at: self.created_at,
            updated_at: self.created_at,
        }
    }

    /// The drafts of a batch for the domains `within`. A password takes some 20 ms, so the rest is left out once the
    /// import `is_over`.
    pub fn of_records(
        batch: Vec<Record>,
        policy: &Policy,
        within: &InDomains,
        is_over: &AtomicBool,
    ) -> Vec<Result<Self, Error>> {
        let records = batch.into_iter().take_while(|_| !is_over.load(Ordering::Relaxed));
        records.map(|record| Self::of_record(record, policy, within)).collect()
    }

    fn of_record(record: Record, policy: &Policy, within: &InDomains) -> Result<Self, Error> {
        let hash = record.password_hash;
        if hash.as_deref().is_some_and(|hash| !password::is_hash(hash)) {
            return Err(Error::field("password_hash", "not an argon2 hash in PHC form"));
        }
        if i64::try_from(record.clicks).is_err() {
            return Err(Error::field("clicks", "too many"));
        }
        let draft = Self::new(record.link, policy, within)?;
        Ok(Self {
            clicks: record.clicks,
            created_at: record.created_at.unwrap_or(draft.created_at),
            password_hash: draft.password_hash.or(hash),
            ..draft
        })
    }
}

/// A patch that follows every rule, except those between two fields and the number of tags.
#[derive(Clone)]
pub(in crate::store) struct Edit {
    pub target: Option<String>,
    pub title: Option<Option<String>>,
    pub tags: Option<Vec<String>>,
    pub status: Option<Status>,
    pub redirect: Option<RedirectStatus>,
    pub forward_query: Option<bool>,
    pub password_hash: Option<Option<String>>,
    pub not_before: Option<Option<Timestamp>>,
    pub expires_at: Option<Option<Timestamp>>,
    pub max_clicks: Option<Option<u64>>,
    pub add_tags: Vec<String>,
    pub remove_tags: Vec<String>,
}

impl Edit {
    pub fn new(patch: LinkPatch, policy: &Policy) -> Result<Self, Error> {
        Ok(Self {
            target: patch.target.map(|target| policy.target(&target)).transpose()?,
            title: patch.title.map(link::title).transpose()?,
            tags: patch.tags.map(link::tags).transpose()?,
            status: patch.status,
            redirect: patch.redirect,
            forward_query: patch.forward_query,
            not_before: patch.not_before,
            expires_at: patch.expires_at,
            max_clicks: patch.max_clicks.map(link::max_clicks).transpose()?,
            password_hash: patch.password.map(|new| new.as_deref().map(hash).transpose()).transpose()?,
            add_tags: Vec::new(),
            remove_tags: Vec::new(),
        })
    }

    /// Like [`new`](Self::new), for the same change of many links.
    pub fn of_many(patch: ManyPatch, policy: &Policy) -> Result<Self, Error> {
        let ManyPatch { set, add_tags, remove_tags } = patch;
        if set.tags.is_some() && !(add_tags.is_empty() && remove_tags.is_empty()) {
            return Err(Error::field("add_tags", "tags are either set, or added and removed"));
        }
        let of_field = |field| move |invalid: InvalidField| Error::field(field, invalid.reason);
        Ok(Self {
            add_tags: link::tags(add_tags).map_err(of_field("add_tags"))?,
            remove_tags: link::tags(remove_tags).map_err(of_field("remove_tags"))?,
            ..Self::new(set, policy)?
        })
    }

    /// Whether it may change a link's tags.
    pub fn retags(&self) -> bool {
        self.tags.is_some() || !self.add_tags.is_empty() || !self.remove_tags.is_empty()
    }

    /// Applies the edit to a link, except for its password. Returns the new password, if it changes.
    pub fn apply(self, link: &mut Link) -> Result<Option<Option<String>>, Error> {
        fn set<T>(field: &mut T, edit: Option<T>) {
            if let Some(value) = edit {
                *field = value;
            }
        }
        set(&mut link.target, self.target);
        set(&mut link.title, self.title);
        set(&mut link.tags, self.tags);
        if !self.add_tags.is_empty() || !self.remove_tags.is_empty() {
            let mut tags = std::mem::take(&mut link.tags);
            tags.extend(self.add_tags);
            tags.retain(|tag| !self.remove_tags.contains(tag));
            link.tags = link::tags(tags)?;
        }
        set(&mut link.status, self.status);
        set(&mut link.redirect, self.redirect);
        set(&mut link.forward_query, self.forward_query);
        set(&mut link.not_before, self.not_before);
        set(&mut link.expires_at, self.expires_at);
        set(&mut link.max_clicks, self.max_clicks);
        link.updated_at = Timestamp::now();
        link::dates(link.not_before, link.expires_at)?;
        Ok(self.password_hash)
    }
}

fn hash(password: &str) -> Result<String, Error> {
    password::hash(password).map_err(|error| Error::field("password", error.to_string()))
}
