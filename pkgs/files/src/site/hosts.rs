//! Several sites, by the host that is asked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use service::tls::CertificateFiles;

use super::Site;
use super::gate::{KeyRule, RealmRule};
use super::rules::{self, Rule, Rules};

/// The most sites: each worker has a table of names for each.
const MAX_SITES: usize = 1024;

/// What rules say of one site. All else holds as for the first, which is that of `--root`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SiteRule {
    /// Its names; `*.` in front stands for all below one.
    pub hosts: Vec<String>,
    /// Its directory, from that of the file of rules.
    pub root: PathBuf,
    /// Whether its directories are listed where no rule says otherwise; `--listing` by default.
    pub listing: Option<bool>,
    /// Its certificate and those that signed it, in PEM, beside those of `--cert`.
    pub cert: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    pub cert_key: Option<PathBuf>,
    /// As at the top of the file, for this site alone, and so are the others.
    #[serde(default)]
    error_pages: BTreeMap<String, String>,
    #[serde(default)]
    realm: BTreeMap<String, RealmRule>,
    #[serde(default)]
    key: BTreeMap<String, KeyRule>,
    #[serde(default)]
    rule: Vec<Rule>,
    /// These four, as they are applied.
    #[serde(skip)]
    rules: Rules,
}

/// What is answered for hosts that no site is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownHosts {
    /// The site of `--root`.
    #[default]
    Serve,
    /// 421.
    Refuse,
}

/// Why there are no sites.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No name.
    #[error("site {0:?}: that is no name of a host, nor one behind *.")]
    Host(String),
    /// Two of a name.
    #[error("site {0:?}: there are two of this name")]
    Twice(String),
    /// A site nobody can ask for.
    #[error("a site has no hosts")]
    Nameless,
    /// One of the two.
    #[error("site {0:?}: cert and cert-key go together")]
    Certificate(String),
    /// Too many.
    #[error("there are more than {MAX_SITES} sites")]
    Many,
}

/// Sites by host.
#[derive(Debug)]
pub struct Hosts {
    /// By lower-case name. Of `*.example.org` it is `example.org` in `wildcards`.
    exact: HashMap<Box<str>, Arc<Site>>,
    wildcards: HashMap<Box<str>, Arc<Site>>,
    unknown: UnknownHosts,
}

impl SiteRule {
    /// Looks over its rules, and makes of them what is applied.
    ///
    /// # Errors
    /// Those of [`Rules::complete`].
    pub fn complete(&mut self) -> Result<(), rules::Error> {
        self.rules = Rules {
            error_pages: std::mem::take(&mut self.error_pages),
            realm: std::mem::take(&mut self.realm),
            key: std::mem::take(&mut self.key),
            rule: std::mem::take(&mut self.rule),
            ..Rules::default()
        };
        self.rules.complete()
    }

    /// Its rules, taken out of it.
    pub fn take_rules(&mut self) -> Rules {
        std::mem::take(&mut self.rules)
    }

    /// Its certificate, where it has one; `place` is where relative paths begin.
    pub fn certificate(&self, place: &Path) -> Option<CertificateFiles> {
        let (chain, key) = (self.cert.as_ref()?, self.cert_key.as_ref()?);
        Some(CertificateFiles { chain: place.join(chain), key: place.join(key) })
    }
}

/// Looks over the names of all sites, and makes them lower-case.
///
/// # Errors
/// [`Error`].
pub fn check(sites: &mut [SiteRule]) -> Result<(), Error> {
    if sites.len() > MAX_SITES {
        return Err(Error::Many);
    }
    let mut known = HashSet::new();
    for site in sites {
        let Some(first) = site.hosts.first().cloned() else { return Err(Error::Nameless) };
        if site.cert.is_some() != site.cert_key.is_some() {
            return Err(Error::Certificate(first));
        }
        for host in &mut site.hosts {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            let is_address = is_address.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
            let is_name =
                !name.is_empty() && name.bytes().all(fits) && !name.starts_with('.') && !name.ends_with('.');
            if !is_address && !is_name {
                return Err(Error::Host(host.clone()));
            }
            host.make_ascii_lowercase();
            if !known.insert(host.clone()) {
                return Err(Error::Twice(host.clone()));
            }
        }
    }
    Ok(())
}

impl Hosts {
    /// Of sites with their names.
    pub fn new(sites: impl IntoIterator<Item = (Vec<String>, Arc<Site>)>, unknown: UnknownHosts) -> Self {
        let mut hosts = Self { exact: HashMap::new(), wildcards: HashMap::new(), unknown };
        for (names, site) in sites {
            for name in names {
                match name.strip_prefix("*.") {
                    Some(parent) => hosts.wildcards.insert(parent.into(), Arc::clone(&site)),
                    None => hosts.exact.insert(name.into(), Arc::clone(&site)),
                };
            }
        }
        hosts
    }

    /// The site of a host as a request names it, which is `other` where none is for it; none where that is refused.
    pub fn of(&self, host: Option<&str>, other: &Arc<Site>) -> Option<Arc<Site>> {
        let found = host.and_then(|host| self.find(&name_of(host)));
        match (found, self.unknown) {
            (Some(site), _) => Some(Arc::clone(site)),
            (None, UnknownHosts::Serve) => Some(Arc::clone(other)),
            (None, UnknownHosts::Refuse) => None,
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<Site>> {
        if let Some(site) = self.exact.get(name) {
            return Some(site);
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(site) = self.wildcards.get(parent) {
                return Some(site);
            }
            rest = parent;
        }
        None
    }
}

/// A host without a user, its port and a final dot, in lower case.
fn name_of(host: &str) -> String {
    let host = host.rsplit('@').next().unwrap_or_default();
    let end = match host.find(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let name = &host[..end];
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_by_name_alone() {
        for (host, name) in [
            ("example.org", "example.org"),
            ("Example.ORG:8443", "example.org"),
            ("example.org.", "example.org"),
            ("example.org.:80", "example.org"),
            ("user@example.org", "example.org"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }
}
