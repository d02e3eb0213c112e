//! What is served: the root, the rules, and the pages of errors. Read at start and again at SIGHUP.
//!
//! - [`root`]: files, looked up below the root by the kernel.
//! - [`rules`]: what holds for some paths and not for others.
//! - [`file`]: an open file with its ready-made heads.
//! - [`refusal`]: the answers that have no file.

pub mod file;
pub mod refusal;
pub mod root;
pub mod rules;

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use refusal::Pages;
use root::{Patience, Root, Symlinks};
use rules::{Policy, Rules};

/// The longest page of an error, and the longest manifest, in bytes: both are kept in memory.
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
    /// Whether files with a dot in front are served.
    pub hidden: bool,
    /// Whether directories are listed where no rule says otherwise.
    pub listing: bool,
    /// Whether codings beside a file are served for it.
    pub precompressed: bool,
    /// The `charset` of texts; empty for none.
    pub charset: String,
}

/// Why there is nothing to serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory that cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The rules.
    #[error("{}: {source}", path.display())]
    Rules {
        /// Which file.
        path: PathBuf,
        /// What is wrong there.
        source: rules::Error,
    },
    /// A file below the root that the rules name.
    #[error("{path}: {source}, named in the rules")]
    Named {
        /// Which.
        path: String,
        /// Why it cannot be used.
        source: root::Error,
    },
}

/// A site as it was last read.
#[derive(Debug)]
pub struct Site {
    /// The directory.
    pub root: Root,
    /// Answers without a file.
    pub pages: Pages,
    /// Whether files with a dot in front are served.
    pub hidden: bool,
    /// The `charset` of texts; empty for none.
    pub charset: String,
    listing: bool,
    rules: Rules,
    /// By path below the root, the file that is read next.
    next: HashMap<Vec<u8>, Vec<u8>>,
}

impl Site {
    /// Reads all of it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(options: &Options) -> Result<Self, Error> {
        let file = |path: &Path| {
            let path = path.to_owned();
            |source| Error::File { path, source }
        };
        let root = Root::open(&options.root, options.symlinks, options.precompressed)
            .map_err(file(&options.root))?;
        let rules = match &options.rules {
            None => Rules::default(),
            Some(path) => {
                // It is read again at SIGHUP, and may keep nobody waiting, as a pipe would.
                let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
                let opened = opened.and_then(|opened| match opened.metadata()?.is_file() {
                    true => Ok(opened),
                    false => Err(io::Error::new(io::ErrorKind::InvalidInput, "rules are in a regular file")),
                });
                rules_of(path, opened)?
            }
        };
        let named = |path: &str| -> Result<Vec<u8>, Error> {
            let failed = |source| Error::Named { path: path.to_owned(), source };
            let opened =
                root.regular(path.trim_start_matches('/').as_bytes(), Patience::Disk).map_err(failed)?;
            let failed = |source| Error::File { path: path.into(), source };
            read(opened.fd.into(), MAX_KEPT_BYTES).map_err(failed)
        };
        let mut pages = Pages::default();
        for (status, path) in &rules.error_pages {
            if let Ok(status) = status.parse() {
                pages.set(status, file::media_type(path.as_bytes(), &options.charset), named(path)?);
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
            pages,
            hidden: options.hidden,
            charset: options.charset.clone(),
            listing: options.listing,
            rules,
            next,
        })
    }

    /// What the rules say of the file at this path below the root, or of the listing of a directory, whose path ends
    /// with a slash.
    pub fn policy(&self, path: &[u8]) -> Policy {
        self.rules.policy(&[b"/", path].concat(), self.listing)
    }

    /// Whether any rule names a manifest.
    pub fn has_manifests(&self) -> bool {
        !self.next.is_empty()
    }

    /// The file that a manifest has behind this one.
    pub fn next(&self, path: &[u8]) -> Option<&[u8]> {
        self.next.get(path).map(Vec::as_slice)
    }
}

/// The rules in an open file of this path, which may be a pipe.
///
/// # Errors
/// [`Error::File`] where it cannot be read or is too long, and [`Error::Rules`].
pub fn rules_of(path: &Path, opened: io::Result<std::fs::File>) -> Result<Rules, Error> {
    let text = opened.and_then(|opened| read(opened, rules::MAX_BYTES));
    let text = text.and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "rules are text in UTF-8"))
    });
    let text = text.map_err(|source| Error::File { path: path.to_owned(), source })?;
    Rules::parse(&text).map_err(|source| Error::Rules { path: path.to_owned(), source })
}

/// All of a file, where it is no longer than `max` bytes.
fn read(file: std::fs::File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut bytes)?;
    if read as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
