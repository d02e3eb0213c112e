//! Rules for one of several sites.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use service::tls::CertificateFiles;

use super::error::{Error, MAX_SITES, SiteError};
use super::{Rule, Rules};
use crate::site::secrets::{KeyRule, RealmRule};

/// A site's rules. Everything else is the same as for the first site, which is that of `--root`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SiteRule {
    /// Its names; a leading `*.` stands for all names below one.
    pub hosts: Vec<String>,
    /// Its directory, relative to the rules file's.
    pub root: PathBuf,
    /// Whether its directories are listed by default; `--listing` by default.
    pub listing: Option<bool>,
    /// Its certificate chain, in PEM, in addition to `--cert`.
    pub cert: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    pub cert_key: Option<PathBuf>,
    /// As at the top of the file, but only for this site. The same applies to the next three.
    #[serde(default)]
    error_pages: BTreeMap<String, String>,
    #[serde(default)]
    realm: BTreeMap<String, RealmRule>,
    #[serde(default)]
    key: BTreeMap<String, KeyRule>,
    #[serde(default)]
    rule: Vec<Rule>,
    /// These four in the form that is applied.
    #[serde(skip)]
    rules: Rules,
}

/// The longest name of a host, in bytes: DNS allows 255 octets, and two of those aren't written (RFC 1035, section
/// 2.3.4).
pub const MAX_NAME_BYTES: usize = 253;

/// What is answered for hosts that have no site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownHosts {
    /// The site of `--root`.
    #[default]
    Serve,
    /// 421.
    Refuse,
}

impl SiteRule {
    /// Checks its rules, and prepares them.
    ///
    /// # Errors
    /// Those of [`Rules::complete`].
    pub fn complete(&mut self) -> Result<(), Error> {
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

    /// Its certificate, if it has one; relative paths start from `place`.
    pub fn certificate(&self, place: &Path) -> Option<CertificateFiles> {
        let (chain, key) = (self.cert.as_ref()?, self.cert_key.as_ref()?);
        Some(CertificateFiles { chain: place.join(chain), key: place.join(key) })
    }
}

/// Checks the names of all sites, and makes them lower-case.
///
/// # Errors
/// [`SiteError`].
pub fn check(sites: &mut [SiteRule]) -> Result<(), SiteError> {
    if sites.len() > MAX_SITES {
        return Err(SiteError::Many);
    }
    let mut known = HashSet::new();
    for site in sites {
        let Some(first) = site.hosts.first().cloned() else { return Err(SiteError::Nameless) };
        if site.cert.is_some() != site.cert_key.is_some() {
            return Err(SiteError::Certificate(first));
        }
        for host in &mut site.hosts {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            let is_address = is_address.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
            let is_name =
                !name.is_empty() && name.bytes().all(fits) && !name.starts_with('.') && !name.ends_with('.');
            if !is_address && !is_name || host.len() > MAX_NAME_BYTES {
                return Err(SiteError::Host(host.clone()));
            }
            host.make_ascii_lowercase();
            if !known.insert(host.clone()) {
                return Err(SiteError::Twice(host.clone()));
            }
        }
    }
    Ok(())
}
