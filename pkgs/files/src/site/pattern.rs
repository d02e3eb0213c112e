//! Patterns match paths, and templates make new paths or URLs from them.
//!
//! A pattern is a glob, in which `*` stands for anything, or a regular expression. Both take time linear in the path. A
//! template replaces `$1` to `$9` with what the pattern's `*` or groups matched, and `$path` with the whole path, whose
//! first slash is left out behind another.

use percent_encoding::{AsciiSet, percent_encode};
use regex::bytes::{Regex, RegexBuilder};

use crate::http::path::ESCAPED;

/// Characters that have to be escaped in a part of a query, so that it stays within its parameter.
const ESCAPED_IN_QUERY: &AsciiSet = &ESCAPED.add(b'&').add(b'+').add(b';').add(b'=');

/// The most memory a compiled regular expression may take, in bytes.
const REGEX_BYTES: usize = 1 << 20;

/// The highest number after a `$`: `$1` to `$9`.
const MAX_CAPTURES: usize = 9;

/// The paths a rule is for.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// A glob, in which `*` stands for anything, including slashes.
    Glob(Box<[u8]>),
    /// A regular expression, which may match anywhere in the path unless it is anchored.
    Regex(Regex),
}

/// What the `*` or groups of a pattern matched in a path.
pub type Captures<'t> = Vec<&'t [u8]>;

/// How to make something from a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The capture with this number, from 0.
    Capture(usize),
    Path,
}

/// Why a template isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A `$` followed by something else.
    #[error("behind a $ comes a digit from 1 to 9, path, or another $")]
    Dollar,
    /// A capture that the pattern doesn't have.
    #[error("there is no ${0}: the pattern has {1} of them")]
    Capture(usize, usize),
    /// The regular expression.
    #[error("{0}")]
    Regex(String),
}

impl Pattern {
    /// A regular expression over bytes: `.` and `\w` match ASCII, or any byte.
    ///
    /// # Errors
    /// [`Error::Regex`], in one line.
    pub fn regex(text: &str) -> Result<Self, Error> {
        let built = RegexBuilder::new(text).unicode(false).size_limit(REGEX_BYTES).build();
        built.map(Self::Regex).map_err(|error| {
            let said = error.to_string();
            Error::Regex(said.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
        })
    }

    /// Whether it matches a path, which starts with its slash.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Glob(pattern) => glob(pattern, path),
            Self::Regex(regex) => regex.is_match(path),
        }
    }

    /// What its parts matched in a path; none if it doesn't match.
    pub fn captures<'t>(&self, path: &'t [u8]) -> Option<Captures<'t>> {
        match self {
            Self::Glob(pattern) => {
                let mut captures = Vec::new();
                walk(pattern, path, |capture| captures.push(capture)).then_some(captures)
            }
            Self::Regex(regex) => {
                let found = regex.captures(path)?;
                Some(
                    found
                        .iter()
                        .skip(1)
                        .map(|group| group.map_or(&b""[..], |group| group.as_bytes()))
                        .collect(),
                )
            }
        }
    }

    /// How many captures it has.
    fn count(&self) -> usize {
        match self {
            Self::Glob(pattern) => pattern.iter().filter(|byte| **byte == b'*').count(),
            Self::Regex(regex) => regex.captures_len() - 1,
        }
    }
}

impl Template {
    /// Parses a template for the captures of `pattern`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(text: &str, pattern: &Pattern) -> Result<Self, Error> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('$') {
            parts.push(Part::Text(before.to_owned()));
            rest = match behind.as_bytes() {
                [b'$', ..] => {
                    parts.push(Part::Text("$".to_owned()));
                    &behind[1..]
                }
                [digit @ b'1'..=b'9', ..] => {
                    let number = usize::from(digit - b'0');
                    if number > pattern.count().min(MAX_CAPTURES) {
                        return Err(Error::Capture(number, pattern.count()));
                    }
                    parts.push(Part::Capture(number - 1));
                    &behind[1..]
                }
                _ => {
                    parts.push(Part::Path);
                    behind.strip_prefix("path").ok_or(Error::Dollar)?
                }
            };
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The bytes of the path it makes from a path and its captures.
    pub fn expand(&self, path: &[u8], captures: &Captures<'_>) -> Vec<u8> {
        let mut made = Vec::new();
        self.each(path, captures, |part, _| made.extend_from_slice(part));
        made
    }

    /// The same as a part of a URL: inserted text is escaped, so that it can end neither the path nor the line.
    pub fn escape(&self, path: &[u8], captures: &Captures<'_>) -> String {
        self.escape_by(ESCAPED, path, captures)
    }

    /// The same as a part of a URL's query: inserted text can't add a parameter either.
    pub fn escape_query(&self, path: &[u8], captures: &Captures<'_>) -> String {
        self.escape_by(ESCAPED_IN_QUERY, path, captures)
    }

    fn escape_by(&self, escaped: &'static AsciiSet, path: &[u8], captures: &Captures<'_>) -> String {
        let mut made = String::new();
        self.each(path, captures, |part, literal| match (literal, std::str::from_utf8(part)) {
            (true, Ok(text)) => made.push_str(text),
            _ => made.extend(percent_encode(part, escaped)),
        });
        made
    }

    fn each(&self, path: &[u8], captures: &Captures<'_>, mut put: impl FnMut(&[u8], bool)) {
        let mut ends_with_slash = false;
        for part in &self.0 {
            let (text, literal) = match part {
                Part::Text(text) => (text.as_bytes(), true),
                Part::Capture(number) => (captures.get(*number).copied().unwrap_or_default(), false),
                // A path has a slash in front, which may be there already, such as behind a host.
                Part::Path if ends_with_slash => (path.strip_prefix(b"/").unwrap_or(path), false),
                Part::Path => (path, false),
            };
            ends_with_slash = text.last().map_or(ends_with_slash, |last| *last == b'/');
            put(text, literal);
        }
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for anything.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    walk(pattern, text, |_| ())
}

/// The same, with what each `*` matched: as little as possible, except for the last.
fn walk<'t>(pattern: &[u8], text: &'t [u8], mut found: impl FnMut(&'t [u8])) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = memchr::memmem::find(rest, part) else { return false };
        found(&rest[..at]);
        rest = &rest[at + part.len()..];
    }
    rest.strip_suffix(last).map(found).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, captured) in [
            ("/a", "/a", Some(vec![])),
            ("/a", "/ab", None),
            ("*", "/a/b", Some(vec!["/a/b"])),
            ("/a/*", "/a/b/c", Some(vec!["b/c"])),
            ("/a/*", "/a", None),
            ("*.js", "/x/y.js", Some(vec!["/x/y"])),
            ("*.js", "/x/y.js.map", None),
            ("/a/*.min.*", "/a/b.min.js", Some(vec!["b", "js"])),
            ("/a*a", "/a", None),
            ("/*b*b", "/ab", None),
            ("/**b", "/ab", Some(vec!["", "a"])),
        ] {
            let found = Pattern::Glob(pattern.as_bytes().into());
            let captured = captured.map(|all| all.into_iter().map(str::as_bytes).collect::<Vec<_>>());
            assert_eq!(found.captures(text.as_bytes()), captured, "{pattern} {text}");
            assert_eq!(found.matches(text.as_bytes()), captured.is_some(), "{pattern} {text}");
        }
    }

    #[test]
    fn templates_put_in_what_was_captured() {
        let glob = |text: &str| Pattern::Glob(text.as_bytes().into());
        let regex = |text: &str| Pattern::regex(text).expect("an expression");
        for (pattern, template, path, made, escaped) in [
            (glob("/old/*"), "/new/$1", "/old/a b", "/new/a b", "/new/a%20b"),
            (glob("*"), "$path.html", "/a", "/a.html", "/a.html"),
            (glob("/*/*"), "/$2?of=$1&$$", "/a/b?c", "/b?c?of=a&$", "/b%3Fc?of=a&$"),
            (regex("^/u/([0-9]+)(/x)?$"), "/user/$1$2", "/u/42", "/user/42", "/user/42"),
            (regex("^/u/(?<id>[0-9]+)$"), "/$1", "/u/7", "/7", "/7"),
            (glob("/*"), "/$1", "/\u{e9}\r\n%", "/\u{e9}\r\n%", "/%C3%A9%0D%0A%25"),
            (glob("*"), "https://new.example/$path", "/a", "https://new.example/a", "https://new.example/a"),
            (glob("/*"), "/x/$1$path", "/", "/x/", "/x/"),
        ] {
            let template = Template::parse(template, &pattern).expect("a template");
            let captures = pattern.captures(path.as_bytes()).expect("it matches");
            assert_eq!(template.expand(path.as_bytes(), &captures), made.as_bytes(), "{path}");
            assert_eq!(template.escape(path.as_bytes(), &captures), escaped, "{path}");
        }
        for (pattern, template, said) in [
            ("/*", "/$2", "there is no $2: the pattern has 1 of them"),
            ("/*", "/$0", "behind a $ comes a digit from 1 to 9, path, or another $"),
            ("/*", "/a$", "behind a $ comes a digit from 1 to 9, path, or another $"),
        ] {
            assert_eq!(Template::parse(template, &glob(pattern)).expect_err(template).to_string(), said);
        }
    }

    #[test]
    fn an_expression_takes_bounded_memory_and_linear_time() {
        for text in ["(", "(a{1000}){1000}{1000}"] {
            let said = Pattern::regex(text).expect_err(text).to_string();
            assert!(!said.is_empty() && said.lines().count() == 1, "{said}");
        }
        // A backtracking engine would take longer for this than the universe is old.
        let evil = Pattern::regex("^/(a+)+$").expect("an expression");
        assert!(!evil.matches(format!("/{}!", "a".repeat(4000)).as_bytes()));
    }
}
