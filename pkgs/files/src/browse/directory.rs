//! A page of a directory's entries, sorted by name. However many there are, only a page of names is in memory.

use std::collections::BTreeSet;

use rustix::fs::{Dir, FileType};
use serde::Serialize;

use super::{Browser, Kept, escaped, rules};
use crate::http::encoding::Coding;
use crate::http::media_type::media_type;
use crate::http::path::normal;
use crate::site::Site;
use crate::site::root::{DirectoryHint, Error, FileIdentity, Found, LookupMode};

/// Entries per page. Each is looked up, and its file opened.
const ENTRIES: usize = 200;

/// A page of a directory.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    /// Its path.
    path: String,
    entries: Vec<Entry>,
    /// The name after which the next page starts; none on the last page.
    next: Option<String>,
    /// The rules that match the directory itself.
    rules: Vec<serde_json::Value>,
}

/// An entry.
#[derive(Debug, Serialize)]
struct Entry {
    /// Its name for people, with invalid UTF-8 replaced.
    name: String,
    /// Its path; a directory's ends with a slash.
    path: String,
    /// `file`, `directory`, or `other` for what is not served.
    kind: &'static str,
    /// Whether it is a symbolic link.
    link: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// When it last changed, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<i64>,
    /// The media type it is sent with.
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    /// The encodings beside it that are sent for it.
    codings: Vec<&'static str>,
    kept: Kept,
    /// The numbers of the rules that match it.
    rules: Vec<usize>,
    /// Why it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The entries of the directory at `path` after the name `after`.
pub(super) fn page(browser: &Browser, site: &Site, path: &[u8], after: &[u8]) -> Result<Page, Error> {
    let mut path = path.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    let directory = site.root.directory(&path, LookupMode::MayBlock)?;
    let mut names: BTreeSet<(Vec<u8>, bool)> = BTreeSet::new();
    let mut more = false;
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let hides = name.starts_with(b".") && !site.hidden && !(path.is_empty() && name == b".well-known");
        if matches!(name, b"." | b"..") || hides || name <= after {
            continue;
        }
        names.insert((name.to_vec(), entry.file_type() == FileType::Symlink));
        if names.len() > ENTRIES {
            names.pop_last();
            more = true;
        }
    }
    let next = names.last().filter(|_| more).map(|(name, _)| escaped(name));
    let entries = names.into_iter().map(|(name, link)| entry(browser, site, (&path, &name), link)).collect();
    Ok(Page { path: format!("/{}", escaped(&path)), entries, next, rules: rules(site, &path) })
}

fn entry(browser: &Browser, site: &Site, (place, name): (&[u8], &[u8]), link: bool) -> Entry {
    let path = [place, name].concat();
    let mut entry = Entry {
        name: String::from_utf8_lossy(name).into_owned(),
        path: format!("/{}", escaped(&path)),
        kind: "other",
        link,
        size: None,
        modified: None,
        media_type: None,
        codings: Vec::new(),
        kept: Kept::default(),
        rules: Vec::new(),
        why: None,
    };
    // No request gets as far as the disk with a control character in its path.
    let is_asked_for = normal(&[b"/", &path[..]].concat(), site.hidden).is_ok();
    match site.find(&path, LookupMode::MayBlock, DirectoryHint::Unknown) {
        _ if !is_asked_for => entry.why = Some("no client can ask for this name".into()),
        Ok(Found::File(files)) => {
            entry.kind = "file";
            if let Some(file) = &files[0] {
                entry.size = Some(file.identity.size);
                entry.modified = Some(file.identity.modified.0);
                entry.kept = browser.kept(file);
            }
            entry.media_type = Some(media_type(&path, &site.charset).into_owned());
            let beside = Coding::ALL.into_iter().zip(&files[1..]).filter(|(_, file)| file.is_some());
            entry.codings = beside.map(|(coding, _)| coding.name()).collect();
        }
        Ok(Found::Directory | Found::Listing(_)) => {
            entry.kind = "directory";
            entry.path.push('/');
            let opened = site.root.directory(&path, LookupMode::MayBlock);
            let identity = opened.ok().and_then(|fd| FileIdentity::of(fd).ok());
            entry.modified = identity.map(|(identity, _)| identity.modified.0);
        }
        Err(Error::Missing) if link => entry.why = Some("this link leads nowhere that is served".into()),
        Err(Error::Missing) => entry.why = Some("it is neither a file nor a directory".into()),
        Err(error) => entry.why = Some(error.to_string()),
    }
    let slash: &[u8] = if entry.kind == "directory" { b"/" } else { b"" };
    let whole = [b"/", &path[..], slash].concat();
    entry.rules = site.rules_for(&whole).map(|(number, _)| number).collect();
    entry
}
