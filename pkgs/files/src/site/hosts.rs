//! Several sites, selected by the requested host.

use std::collections::HashMap;
use std::sync::Arc;

use super::Site;
use super::rules::site_rule::{MAX_NAME_BYTES, UnknownHosts};

/// Sites by host.
#[derive(Debug)]
pub struct VirtualHosts {
    /// By lower-case name. `*.example.org` is in `wildcards` as `example.org`.
    exact: HashMap<Box<str>, Arc<Site>>,
    wildcards: HashMap<Box<str>, Arc<Site>>,
    unknown: UnknownHosts,
    hints_early: bool,
}

impl VirtualHosts {
    /// From sites and their names.
    pub fn new(sites: impl IntoIterator<Item = (Vec<String>, Arc<Site>)>, unknown: UnknownHosts) -> Self {
        let mut hosts =
            Self { exact: HashMap::new(), wildcards: HashMap::new(), unknown, hints_early: false };
        for (names, site) in sites {
            hosts.hints_early |= site.has_early_hints();
            for name in names {
                match name.strip_prefix("*.") {
                    Some(parent) => hosts.wildcards.insert(parent.into(), Arc::clone(&site)),
                    None => hosts.exact.insert(name.into(), Arc::clone(&site)),
                };
            }
        }
        hosts
    }

    /// Whether any site has rules about what clients need besides what they request.
    pub fn hints_early(&self) -> bool {
        self.hints_early
    }

    /// The site for the host in a request, or `other` if there is none for it; none if that is refused.
    pub fn of<'s>(&'s self, host: Option<&str>, other: &'s Arc<Site>) -> Option<&'s Arc<Site>> {
        let found = host.and_then(|host| self.find(&name_of(host)));
        match (found, self.unknown) {
            (Some(site), _) => Some(site),
            (None, UnknownHosts::Serve) => Some(other),
            (None, UnknownHosts::Refuse) => None,
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<Site>> {
        // A client could otherwise have thousands of labels looked up, each with all that follow it.
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
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

/// A host without user, port and final dot, in lower case.
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
    use crate::site::Options;
    use crate::site::root::Symlinks;
    use crate::site::rules::Rules;

    #[test]
    fn a_name_that_is_longer_than_any_host_has_is_unknown() {
        let root = tempfile::tempdir().expect("a directory");
        let options = Options {
            origin: None,
            root: root.path().to_owned(),
            rules: None,
            symlinks: Symlinks::Beneath,
            hidden: false,
            listing: false,
            precompressed: false,
            charset: String::new(),
        };
        let site = Arc::new(Site::load(&options).expect("a site"));
        let hosts =
            VirtualHosts::new([(vec!["*.example.net".to_owned()], Arc::clone(&site))], UnknownHosts::Refuse);
        let below = |labels: usize| format!("{}example.net", "a.".repeat(labels));
        for (name, is_known) in [(below(121), true), (below(122), false), (below(4000), false)] {
            assert_eq!(hosts.of(Some(&name), &site).is_some(), is_known, "{} bytes", name.len());
        }
        for (host, is_name) in [(format!("*.{}", below(120)), true), (format!("*.{}", below(121)), false)] {
            let text = format!("[[site]]\nhosts = ['{host}']\nroot = 'a'\n");
            assert_eq!(Rules::parse(&text).is_ok(), is_name, "{} bytes", host.len());
        }
    }

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
