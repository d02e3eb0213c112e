//! The site: its root, rules and error pages, which are read at the start and again at SIGHUP.
//!
//! - [`root`]: files, looked up below the root by the kernel; [`origin`]: files in object storage, [`origin_file`]: a
//!   single one.
//! - [`lookup`]: questions that may have to wait.
//! - [`rules`]: settings for some paths; [`pattern`]: which paths.
//! - [`hosts`]: selects the site, if there are several.
//! - [`route`]: redirects, rewrites and fallbacks.
//! - [`access`]: access control; [`secrets`]: its passwords and keys; [`signature`]: URLs that expire.
//! - [`errors`]: answers without a file.

pub mod access;
pub mod errors;
pub mod hosts;
pub mod lookup;
pub mod origin;
pub mod origin_file;
pub mod pattern;
pub mod root;
pub mod route;
pub mod rules;
pub mod secrets;
pub mod signature;

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ::origin::Origin;
use access::AccessControl;
use errors::ErrorPages;
use hosts::VirtualHosts;
use lookup::{Candidates, Choice, Named};
use origin::OriginRoot;
use root::{DirectoryHint, Found, INDEX, LookupMode, Root, Symlinks, names_directory};
use route::Route;
use rules::{Policy, Rule, Rules};
use secrets::Secrets;
use service::tls::CertificateFiles;

use crate::http::encoding::Coding;
use crate::http::media_type::media_type;

/// The longest error page, and the longest manifest, in bytes: both are kept in memory.
const MAX_KEPT_BYTES: u64 = 1 << 20;

/// Where a site is, and how it is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory.
    pub root: PathBuf,
    /// The file of rules.
    pub rules: Option<PathBuf>,
    /// Which symbolic links are followed.
    pub symlinks: Symlinks,
    /// Whether files that start with a dot are served.
    pub hidden: bool,
    /// Whether directories are listed by default.
    pub listing: bool,
    /// Whether encodings next to a file are served for it.
    pub precompressed: bool,
    /// The `charset` of texts; empty for none.
    pub charset: String,
    /// Where files come from instead of the directory, which then only has error pages; none if the directory has
    /// everything.
    pub origin: Option<Origin>,
}

/// Why there is nothing to serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory can't be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The rules.
    #[error("{}: {source}", path.display())]
    Rules {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rules::Error,
    },
    /// Passwords and keys that the rules name.
    #[error(transparent)]
    Secrets(#[from] secrets::SecretError),
    /// Rules that need a directory.
    #[error("{0}: an origin has no directories")]
    NotOfOrigin(&'static str),
    /// A file below the root that the rules name.
    #[error("the rules name {path}: {source}")]
    Named {
        /// The path.
        path: String,
        /// Why it can't be used.
        source: root::Error,
    },
}

/// A site as last read.
#[derive(Debug)]
pub struct Site {
    /// The directory.
    pub root: Root,
    /// Where files come from instead.
    pub origin: Option<OriginRoot>,
    /// Answers without a file.
    pub pages: ErrorPages,
    /// Whether files that start with a dot are served.
    pub hidden: bool,
    /// The `charset` of texts; empty for none.
    pub charset: String,
    /// Its number; the first, from `--root`, is 0.
    pub number: usize,
    /// The other sites, if there are any; only on the first one.
    pub hosts: Option<VirtualHosts>,
    certificates: Vec<CertificateFiles>,
    listing: bool,
    has_routes: bool,
    restricts_access: bool,
    has_archives: bool,
    has_early_hints: bool,
    has_server_timing: bool,
    secrets: Secrets,
    rules: Rules,
    /// For a path below the root, the file that is read next.
    next: HashMap<Vec<u8>, Vec<u8>>,
}

impl Site {
    /// Reads everything.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(options: &Options) -> Result<Self, Error> {
        let mut rules = match &options.rules {
            None => Rules::default(),
            Some(path) => rules_of(path, open_regular(path))?,
        };
        let place = options.rules.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
        let (sites, unknown) = (std::mem::take(&mut rules.site), rules.unknown_hosts);
        let mut first = Self::build(options, rules, 0)?;
        if sites.is_empty() {
            return Ok(first);
        }
        let mut all = Vec::new();
        for (mut site, number) in sites.into_iter().zip(1..) {
            let options = Options {
                root: place.join(&site.root),
                listing: site.listing.unwrap_or(options.listing),
                origin: None,
                ..options.clone()
            };
            first.certificates.extend(site.certificate(&place));
            let rules = site.take_rules();
            all.push((site.hosts, Arc::new(Self::build(&options, rules, number)?)));
        }
        first.hosts = Some(VirtualHosts::new(all, unknown));
        Ok(first)
    }

    /// A single site, from its own rules.
    fn build(options: &Options, rules: Rules, number: usize) -> Result<Self, Error> {
        let file = |path: &Path| {
            let path = path.to_owned();
            |source| Error::File { path, source }
        };
        if options.origin.is_some() {
            if options.listing || rules.rule.iter().any(|rule| rule.listing == Some(true)) {
                return Err(Error::NotOfOrigin("listing"));
            }
            if rules.rule.iter().any(|rule| rule.prefetch.is_some()) {
                return Err(Error::NotOfOrigin("prefetch"));
            }
            if rules.rule.iter().any(|rule| rule.archive.as_ref().is_some_and(|formats| !formats.is_empty()))
            {
                return Err(Error::NotOfOrigin("archive"));
            }
        }
        let root = Root::open(&options.root, options.symlinks, options.precompressed)
            .map_err(file(&options.root))?;
        let named = |path: &str| -> Result<Vec<u8>, Error> {
            let failed = |source| Error::Named { path: path.to_owned(), source };
            let opened = root
                .regular(path.trim_start_matches('/').as_bytes(), LookupMode::MayBlock)
                .map_err(failed)?;
            let failed = |source| Error::File { path: path.into(), source };
            read(opened.fd.into(), MAX_KEPT_BYTES).map_err(failed)
        };
        let mut pages = ErrorPages::default();
        for (status, path) in &rules.error_pages {
            if let Ok(status) = status.parse() {
                let kind = media_type(path.as_bytes(), &options.charset).into_owned();
                pages.set(status, kind, named(path)?);
            }
        }
        let mut next = HashMap::new();
        for path in rules.rule.iter().filter_map(|rule| rule.prefetch.as_deref()) {
            let text = named(path)?;
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let names: Vec<&[u8]> = lines
                .filter(|line| !line.is_empty())
                .map(|line| line.strip_prefix(b"/").unwrap_or(line))
                .collect();
            next.extend(names.windows(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())));
        }
        Ok(Self {
            root,
            origin: options.origin.clone().map(|origin| OriginRoot::new(origin, options.precompressed)),
            pages,
            hidden: options.hidden,
            charset: options.charset.clone(),
            number,
            hosts: None,
            certificates: Vec::new(),
            listing: options.listing,
            has_routes: rules.routes(),
            has_archives: rules.has_archives(),
            has_early_hints: rules.has_early_hints(),
            has_server_timing: rules.has_server_timing(),
            restricts_access: rules.restricts_access(),
            secrets: Secrets::load(&rules.realm, &rules.key, options.rules.as_deref())?,
            rules,
            next,
        })
    }

    /// The rules for a path below the root, with their positions among all rules, counted from 1.
    pub fn rules_for<'s>(&'s self, path: &'s [u8]) -> impl Iterator<Item = (usize, &'s Rule)> {
        self.rules.numbered(path)
    }

    /// The combined rules for the file at this path below the root, or for a directory's listing, whose path ends with
    /// a slash.
    pub fn policy(&self, path: &[u8]) -> Policy {
        self.rules.policy(&[b"/", path].concat(), self.listing)
    }

    /// The combined rules for what is sent for a path; access depends on the rules for both.
    pub fn policy_of(&self, path: &[u8], sent: &[u8]) -> Policy {
        let mut policy = self.policy(sent);
        policy.access = self.access_to(&[path, sent]);
        if let Some(access) = &policy.access {
            let beside = access.fields_beside(&policy.fields);
            policy.fields.push_str(beside);
        }
        policy
    }

    /// Whether directories are listed, if there is no rule for any path: then that is all that policies depend on.
    pub fn lists_without_rules(&self) -> Option<bool> {
        self.rules.rule.is_empty().then_some(self.listing)
    }

    /// The certificates of all sites except the first.
    pub fn certificates(&self) -> &[CertificateFiles] {
        &self.certificates
    }

    /// Whether any rule leads requests elsewhere.
    pub fn routes(&self) -> bool {
        self.has_routes
    }

    /// Where a request for this path below the root leads.
    pub fn route(&self, path: &[u8], query: Option<&str>) -> Route {
        if self.has_routes {
            Route::of(self.rules.all_routes(), path, query, self.hidden)
        } else {
            Route::Direct
        }
    }

    /// What a decoded path names. From an origin, only what is already known is found, and `mode` then makes no
    /// difference.
    ///
    /// # Errors
    /// [`root::Error`].
    pub fn find(&self, path: &[u8], mode: LookupMode, hint: DirectoryHint) -> Result<Found, root::Error> {
        match &self.origin {
            None => self.root.find(path, mode, hint),
            Some(origin) => origin.find_known(path),
        }
    }

    /// The first of several paths that exists, and what it names. A directory without its final slash counts if it is
    /// what was `asked` for, as [`Candidates`] says, and one without an index if it is listed.
    pub fn first(
        &self,
        paths: &[Vec<u8>],
        asked: &[u8],
        mode: LookupMode,
    ) -> (Vec<u8>, Result<Found, root::Error>) {
        let mut candidates = Candidates::new(paths, asked);
        let mut last = Err(root::Error::Missing);
        for (at, path) in paths.iter().enumerate() {
            if candidates.is_over(at) {
                break;
            }
            let found = self.find(path, mode, DirectoryHint::Unknown);
            let named = match &found {
                Err(root::Error::Missing) => Named::Nothing,
                Err(_) => return (path.clone(), found),
                Ok(Found::File(_)) => Named::Answer,
                Ok(Found::Directory) => Named::Directory,
                Ok(Found::Listing(_)) if self.policy(path).listing => Named::Answer,
                Ok(Found::Listing(_)) => Named::Nothing,
            };
            match candidates.choose(at, named) {
                Choice::Answer => return (path.clone(), found),
                // Its path is the requested one.
                Choice::Keep => last = found,
                Choice::Kept => break,
                Choice::Next => {}
            }
        }
        (asked.to_vec(), last)
    }

    /// Whether any rule restricts access.
    pub fn restricts_access(&self) -> bool {
        self.restricts_access
    }

    /// The access control for these paths below the root; none if everybody has access. An encoding next to a file has
    /// that file's access control.
    pub fn access_to(&self, paths: &[&[u8]]) -> Option<Rc<AccessControl>> {
        if !self.restricts_access {
            return None;
        }
        let mut access = AccessControl::default();
        for path in paths {
            let mut path = [b"/", *path].concat();
            self.add_access(&mut access, &path);
            for coding in Coding::ALL {
                if path.ends_with(coding.suffix().as_bytes()) {
                    path.truncate(path.len() - coding.suffix().len());
                    self.add_access(&mut access, &path);
                }
            }
        }
        (!access.is_open()).then(|| Rc::new(access))
    }

    fn add_access(&self, access: &mut AccessControl, path: &[u8]) {
        let (rules, secrets) = (&self.rules, &self.secrets);
        let key = rules.signed(path).and_then(|name| secrets.key(name));
        let realm = rules.auth(path).and_then(|name| secrets.realm(name));
        access.add(rules.referrers(path), key, realm);
    }

    /// Whether any rule allows archives of directories.
    pub fn has_archives(&self) -> bool {
        self.has_archives
    }

    /// What clients need in addition to this path below the root, as values of `Link`, without anything that isn't for
    /// everybody.
    pub fn early_hints(&self, path: &[u8]) -> &[String] {
        if !self.has_early_hints {
            return &[];
        }
        let index = if names_directory(path) { INDEX } else { "" };
        let sent = [path, index.as_bytes()].concat();
        let hints = self.rules.early_hints(&[b"/", &sent[..]].concat());
        // A directory's index may be protected under its own name only.
        if hints.is_empty() || self.access_to(&[path, &sent]).is_none() { hints } else { &[] }
    }

    /// Whether any rule has such additional files.
    pub fn has_early_hints(&self) -> bool {
        self.has_early_hints
    }

    /// Whether any rule makes answers say how long they took.
    pub fn has_server_timing(&self) -> bool {
        self.has_server_timing
    }

    /// Whether any rule names a manifest.
    pub fn has_manifests(&self) -> bool {
        !self.next.is_empty()
    }

    /// The file that comes after this one in a manifest.
    pub fn next(&self, path: &[u8]) -> Option<&[u8]> {
        self.next.get(path).map(Vec::as_slice)
    }
}

/// The rules in an open file with this path, which may be a pipe.
///
/// # Errors
/// [`Error::File`] if it can't be read or is too long, and [`Error::Rules`].
pub fn rules_of(path: &Path, opened: io::Result<std::fs::File>) -> Result<Rules, Error> {
    let text = opened.and_then(|opened| read(opened, rules::MAX_BYTES));
    let text = text.and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "rules are text in UTF-8"))
    });
    let text = text.map_err(|source| Error::File { path: path.to_owned(), source })?;
    Rules::parse(&text).map_err(|source| Error::Rules { path: path.to_owned(), source })
}

/// Opens a file that is read again at SIGHUP. It mustn't block, as a pipe would.
fn open_regular(path: &Path) -> io::Result<std::fs::File> {
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "rules are in regular files")),
    }
}

/// The content of a regular file, if it is no longer than `max` bytes.
fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read(open_regular(path)?, max)
}

/// The content of a file, if it is no longer than `max` bytes.
fn read(file: std::fs::File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut bytes)?;
    if read as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
