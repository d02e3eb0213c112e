//! Questions to a site that may have to wait for the disk or the origin.

use super::Site;
use super::root::{DirectoryHint, Error, Found, LookupMode};

/// What is looked up.
#[derive(Debug)]
pub enum Lookup {
    /// This path, with what is known about its directory.
    One(Vec<u8>, DirectoryHint),
    /// The first of these paths that exists.
    First {
        /// The paths.
        paths: Vec<Vec<u8>>,
        /// The requested path.
        asked: Vec<u8>,
    },
}

impl Lookup {
    /// The requested path.
    pub fn asked(&self) -> &[u8] {
        match self {
            Self::One(asked, _) | Self::First { asked, .. } => asked,
        }
    }

    /// Relies no longer on what else is in a directory, since that may have changed meanwhile.
    pub fn forget_files(&mut self) {
        if let Self::One(_, hint @ DirectoryHint::OnlyFiles) = self {
            *hint = DirectoryHint::NoCodings;
        }
    }

    /// The requested path, once it has been looked up.
    pub fn into_asked(self) -> Vec<u8> {
        match self {
            Self::One(asked, _) | Self::First { asked, .. } => asked,
        }
    }

    /// Looks it up. Returns the path that counts, unless it is the requested one of a single path, and what it names.
    pub fn find(&self, site: &Site, mode: LookupMode) -> (Option<Vec<u8>>, Result<Found, Error>) {
        match self {
            Self::One(path, hint) => (None, site.find(path, mode, *hint)),
            Self::First { paths, asked } => {
                let (path, found) = site.first(paths, asked, mode);
                (Some(path), found)
            }
        }
    }

    /// The same with the path in any case, for those who look it up only once.
    pub fn into_found(self, site: &Site, mode: LookupMode) -> (Vec<u8>, Result<Found, Error>) {
        let (path, found) = self.find(site, mode);
        (path.unwrap_or_else(|| self.into_asked()), found)
    }
}

/// What one of several paths names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A file, or a directory that is listed.
    Answer,
    /// A directory whose path lacks the final slash.
    Directory,
    /// Nothing that is answered.
    Nothing,
}

/// What follows from what one of several paths names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is answered.
    Answer,
    /// It is answered if no later one is.
    Keep,
    /// The kept one is answered.
    Kept,
    /// The next one is looked up.
    Next,
}

/// Chooses among several paths, which are looked up in their order.
///
/// A directory that was requested without its final slash is kept for the time being, since its redirect helps only if
/// there is something behind it: where the pages are `blog.html` and `blog/post.html`, `/blog` means the first. But the
/// last path usually stands in for what is missing, such as `/index.html`, and a directory is not missing. So the last
/// one comes before the directory only if it is the requested path with an extension.
#[derive(Debug)]
pub struct Candidates<'p> {
    paths: &'p [Vec<u8>],
    asked: &'p [u8],
    has_kept: bool,
}

impl<'p> Candidates<'p> {
    /// These paths, for a request for `asked`.
    pub fn new(paths: &'p [Vec<u8>], asked: &'p [u8]) -> Self {
        Self { paths, asked, has_kept: false }
    }

    /// Whether the kept one is answered, whatever the path at this position names.
    pub fn is_over(&self, at: usize) -> bool {
        self.has_kept && at + 1 == self.paths.len() && !self.continues(at, b".")
    }

    /// What follows from what the path at this position names.
    pub fn choose(&mut self, at: usize, named: Named) -> Choice {
        match named {
            // The directory has an index, or is listed. It is requested with its slash first, or its links would lead
            // elsewhere.
            Named::Answer if self.has_kept && self.continues(at, b"/") => Choice::Kept,
            Named::Answer => Choice::Answer,
            Named::Directory if self.paths[at] == self.asked => {
                self.has_kept = true;
                Choice::Keep
            }
            Named::Directory | Named::Nothing => Choice::Next,
        }
    }

    /// Whether a path is the requested one and more, which begins like this.
    fn continues(&self, at: usize, more: &[u8]) -> bool {
        self.paths[at].strip_prefix(self.asked).is_some_and(|rest| rest.starts_with(more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path that is answered, if these are files and directories, of which some have an index.
    fn chosen<'p>(paths: &'p [Vec<u8>], there: &[&str]) -> Option<&'p str> {
        let named = |path: &str| match path.strip_suffix('/') {
            Some(_) if there.contains(&format!("{path}index.html").as_str()) => Named::Answer,
            None if there.contains(&path) => Named::Answer,
            None if there.contains(&format!("{path}/").as_str()) => Named::Directory,
            _ => Named::Nothing,
        };
        let (mut candidates, mut kept) = (Candidates::new(paths, b"blog"), None);
        for (at, path) in paths.iter().enumerate() {
            if candidates.is_over(at) {
                break;
            }
            let path = str::from_utf8(path).expect("text");
            match candidates.choose(at, named(path)) {
                Choice::Answer => return Some(path),
                Choice::Keep => kept = Some(path),
                Choice::Kept => break,
                Choice::Next => {}
            }
        }
        kept
    }

    #[test]
    fn what_was_known_about_a_directory_is_forgotten_only_as_far_as_it_may_do_harm() {
        for (known, kept) in [
            (DirectoryHint::Unknown, DirectoryHint::Unknown),
            (DirectoryHint::NoCodings, DirectoryHint::NoCodings),
            (DirectoryHint::OnlyFiles, DirectoryHint::NoCodings),
        ] {
            let mut lookup = Lookup::One(b"a".to_vec(), known);
            lookup.forget_files();
            assert!(matches!(lookup, Lookup::One(_, hint) if hint == kept), "{known:?}");
        }
    }

    #[test]
    fn a_directory_counts_after_files_of_its_name_and_before_what_stands_in() {
        let page = &["blog/", "blog.html"][..];
        let both = &["blog/", "blog/index.html", "blog.html", "index.html"][..];
        let bare = &["blog/", "index.html"][..];
        for (paths, there, answer) in [
            (&["blog", "blog.html", "blog/"][..], page, Some("blog.html")),
            (&["blog", "blog.html", "blog/"], both, Some("blog.html")),
            (&["blog", "blog.html", "blog/"], bare, Some("blog")),
            // As of nginx's `try_files $uri $uri.html =404`.
            (&["blog", "blog.html"], page, Some("blog.html")),
            (&["blog", "blog.html"], bare, Some("blog")),
            (&["blog", "blog.html", "index.html"], page, Some("blog.html")),
            // In their order, if the directory has an index.
            (&["blog", "blog/", "blog.html"], both, Some("blog")),
            (&["blog", "blog/", "blog.html"], page, Some("blog.html")),
            (&["blog", "blog/index.html", "blog.html"], both, Some("blog")),
            (&["blog", "blog/index.html"], both, Some("blog")),
            // What stands in for the missing.
            (&["blog", "index.html"], both, Some("blog")),
            (&["blog", "index.html"], bare, Some("blog")),
            (&["blog", "blog/", "index.html"], both, Some("blog")),
            (&["blog", "blog/", "index.html"], bare, Some("blog")),
            (&["blog", "blog/", "index.html"], &["index.html"], Some("index.html")),
            (&["blog", "blog.html", "blog/", "index.html"], bare, Some("blog")),
            // A directory that another path names.
            (&["pages/blog", "index.html"], &["pages/blog/", "index.html"], Some("index.html")),
            (&["blog"], bare, Some("blog")),
            (&["blog"], &[], None),
        ] {
            let own: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
            assert_eq!(chosen(&own, there), answer, "{paths:?} {there:?}");
        }
    }
}
