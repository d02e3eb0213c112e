//! The table in which each visit looks up its domain. Each change builds a new table, which all threads receive at
//! once.

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::host::{MAX_HOST_BYTES, of_authority, parse};
use super::{DEFAULT, Domain, DomainId};

/// No domain has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no domain {0:?}")]
pub struct UnknownDomain(pub String);

/// All domains but the default one.
#[derive(Debug, Default)]
pub struct Domains {
    by_host: HashMap<Box<[u8]>, Arc<Domain>, foldhash::fast::RandomState>,
}

impl Domains {
    /// A table of these domains.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Self {
        let key = |domain: Domain| (domain.host.as_bytes().into(), Arc::new(domain));
        Self { by_host: domains.into_iter().map(key).collect() }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty()
    }

    /// The domain that an authority names (`host [ ":" port ]`), in any case and with any port.
    pub fn find(&self, authority: &[u8]) -> Option<&Arc<Domain>> {
        let host = of_authority(authority);
        let mut room = [0; MAX_HOST_BYTES];
        let lower = room.get_mut(..host.len())?;
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        self.by_host.get(&*lower)
    }

    /// The domain with this id.
    pub fn get(&self, id: DomainId) -> Option<&Arc<Domain>> {
        self.by_host.values().find(|domain| domain.id == id)
    }

    /// The domain of this name; `None` for the default domain.
    ///
    /// # Errors
    /// [`UnknownDomain`].
    pub fn named(&self, name: Option<&str>) -> Result<Option<&Arc<Domain>>, UnknownDomain> {
        let Some(name) = name.filter(|name| *name != DEFAULT) else { return Ok(None) };
        let host = parse(name).ok();
        let domain = host.and_then(|host| self.by_host.get(host.as_bytes()));
        domain.map(Some).ok_or_else(|| UnknownDomain(name.to_owned()))
    }

    /// The id of the domain of this name.
    ///
    /// # Errors
    /// [`UnknownDomain`].
    pub fn id(&self, name: Option<&str>) -> Result<DomainId, UnknownDomain> {
        Ok(self.named(name)?.map_or(DomainId::DEFAULT, |domain| domain.id))
    }

    /// All domains, sorted by host.
    pub fn sorted(&self) -> Vec<Arc<Domain>> {
        let mut domains: Vec<_> = self.by_host.values().map(Arc::clone).collect();
        domains.sort_unstable_by(|one, other| one.host.cmp(&other.host));
        domains
    }
}

/// The domains as of the last commit that changed them.
#[derive(Debug, Default)]
pub struct SharedDomains {
    /// Incremented with each change.
    version: AtomicU64,
    /// The domains, with their version.
    domains: Mutex<(u64, Arc<Domains>)>,
}

impl SharedDomains {
    /// The current domains.
    pub fn now(&self) -> Arc<Domains> {
        self.versioned().1
    }

    fn versioned(&self) -> (u64, Arc<Domains>) {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the domains. Once this returns, every thread finds the new ones.
    pub fn set(&self, domains: Domains) {
        let mut held = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, known) = &mut *held;
        if known.by_host == domains.by_host {
            return;
        }
        *version += 1;
        *known = Arc::new(domains);
        self.version.store(*version, Ordering::Release);
    }
}

/// A thread's copy of the domains. Reading costs one atomic load unless they have changed.
pub struct CachedDomains {
    published: Arc<SharedDomains>,
    version: Cell<u64>,
    domains: RefCell<Arc<Domains>>,
}

impl CachedDomains {
    /// A copy of the published domains.
    pub fn new(published: Arc<SharedDomains>) -> Self {
        let (version, domains) = published.versioned();
        Self { published, version: Cell::new(version), domains: RefCell::new(domains) }
    }

    /// The current domains.
    #[inline]
    pub fn now(&self) -> Ref<'_, Arc<Domains>> {
        if self.published.version.load(Ordering::Acquire) != self.version.get() {
            let (version, domains) = self.published.versioned();
            self.version.set(version);
            *self.domains.borrow_mut() = domains;
        }
        self.domains.borrow()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::when::Timestamp;

    fn domain(id: i64, host: &str) -> Domain {
        Domain {
            id: DomainId(id),
            host: host.to_owned(),
            root_target: None,
            default_target: None,
            not_found_html: None,
            created_at: Timestamp(0),
        }
    }

    #[test]
    fn a_domain_is_found_whatever_case_port_and_dot_and_by_nothing_else() {
        let longest = ["x".repeat(63), "y".repeat(63), "z".repeat(63), "w".repeat(61)].join(".");
        let domains = Domains::new([domain(1, "a.example"), domain(2, &longest)]);
        let found = |host: &[u8]| domains.find(host).map(|domain| domain.id.0);
        for host in ["a.example", "A.EXAMPLE", "a.example:8080", "a.example.", "a.Example.:1"] {
            assert_eq!(found(host.as_bytes()), Some(1), "{host}");
        }
        assert_eq!(found(longest.to_uppercase().as_bytes()), Some(2));
        let huge = "x".repeat(8_000);
        for host in [
            "",
            ".",
            ":",
            "a.example..",
            ".a.example",
            "b.a.example",
            "a.example:80:80",
            "a.example:x",
            "[a.example]",
            "[::1]",
            "u@a.example",
            "a.example/",
            "a%2eexample",
            &huge,
            &format!("{longest}w"),
        ] {
            assert_eq!(found(host.as_bytes()), None, "{host:.300}");
        }
        assert_eq!(found(b"a.ex\xe4mple"), None);
        assert_eq!(found(b"\0"), None);
    }

    proptest! {
        #[test]
        fn whatever_names_a_domain_is_its_host_but_for_case_dot_and_port(
            authority in proptest::collection::vec(proptest::sample::select(&b"aA.:[]0%@\xff\0"[..]), 0..12),
        ) {
            let domains = Domains::new([domain(1, "a"), domain(2, "a.a"), domain(3, "a0")]);
            if let Some(domain) = domains.find(&authority) {
                let text = str::from_utf8(&authority).expect("nothing but ASCII is found").to_ascii_lowercase();
                let (host, port) = text.split_once(':').unwrap_or((&text, ""));
                prop_assert!(port.bytes().all(|digit| digit.is_ascii_digit()));
                prop_assert_eq!(host.strip_suffix('.').unwrap_or(host), &*domain.host);
            }
        }
    }

    #[test]
    fn people_may_name_the_default_domain() {
        let domains = Domains::new([domain(1, "a.example")]);
        for (name, id) in [(None, 0), (Some("default"), 0), (Some("a.example"), 1), (Some("A.example."), 1)] {
            assert_eq!(domains.id(name).unwrap(), DomainId(id), "{name:?}");
        }
        for name in ["b.example", "", "a.example:80", "192.0.2.1"] {
            assert!(matches!(domains.id(Some(name)), Err(UnknownDomain(_))), "{name:?}");
        }
    }

    #[test]
    fn a_change_is_seen_by_the_next_look() {
        let published = Arc::new(SharedDomains::default());
        let current = CachedDomains::new(Arc::clone(&published));
        assert!(current.now().is_empty());
        for host in ["a.example", "b.example"] {
            published.set(Domains::new([domain(1, host)]));
            assert!(current.now().find(host.as_bytes()).is_some(), "{host}");
        }
        assert!(current.now().find(b"a.example").is_none());
    }
}
