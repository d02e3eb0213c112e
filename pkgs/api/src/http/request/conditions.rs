//! Conditional requests (RFC 9110, section 13). A user's entity tag is its version in quotes.

use std::sync::LazyLock;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use service::problem::Problem;

use crate::http::failure::Failure;

/// The entity tags of versions below this number are made once.
const KNOWN: usize = 64;

static TAGS: LazyLock<[HeaderValue; KNOWN]> =
    // They are never freed, so that threads need not count references.
    LazyLock::new(|| {
        std::array::from_fn(|version| HeaderValue::from_static(format!("\"{version}\"").leak()))
    });

/// The entity tag of a version.
pub fn tag(version: i64) -> HeaderValue {
    let known = usize::try_from(version).ok().and_then(|version| TAGS.get(version));
    known.cloned().unwrap_or_else(|| made(version))
}

fn made(version: i64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// A request's conditions on the current version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `If-Match`: strong tags only.
    matches: Option<Tags>,
    /// `If-None-Match`: weak tags too.
    none_match: Option<Tags>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    /// `*`.
    Any,
    /// Versions. Other tags are left out, since they never match.
    These(Vec<i64>),
}

/// What a write requires, as far as known before it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Free,
    /// The user must be at this version.
    At(i64),
    /// It depends on the current version.
    Depends,
}

impl Conditions {
    /// The conditions of a request.
    ///
    /// # Errors
    /// 400 if a field is malformed.
    pub fn of(fields: &HeaderMap) -> Result<Self, Failure> {
        Ok(Self {
            matches: read(fields, header::IF_MATCH, false)?,
            none_match: read(fields, header::IF_NONE_MATCH, true)?,
        })
    }

    /// Whether the request says with `If-Match` which versions it accepts; `*` counts too. `If-None-Match` does not
    /// count, since it excludes versions.
    pub fn names_version(&self) -> bool {
        self.matches.is_some()
    }

    /// Whether `If-Match` accepts any version.
    pub fn means_any(&self) -> bool {
        self.matches == Some(Tags::Any)
    }

    /// Whether a read of this version is answered with 304.
    ///
    /// # Errors
    /// 412 if `If-Match` does not hold.
    pub fn unchanged(&self, version: i64) -> Result<bool, Failure> {
        if self.matches.as_ref().is_some_and(|tags| !tags.have(version)) {
            return Err(Failure::precondition());
        }
        Ok(self.none_match.as_ref().is_some_and(|tags| tags.have(version)))
    }

    /// The requirement of a write.
    pub fn write(&self) -> Write {
        match (&self.matches, &self.none_match) {
            (None | Some(Tags::Any), None) => Write::Free,
            (Some(Tags::These(versions)), None) => match versions[..] {
                // Versions start at 1, so none is at 0.
                [] => Write::At(0),
                [version] => Write::At(version),
                _ => Write::Depends,
            },
            _ => Write::Depends,
        }
    }

    /// Whether a write may change this version.
    pub fn allow(&self, version: i64) -> bool {
        self.matches.as_ref().is_none_or(|tags| tags.have(version))
            && !self.none_match.as_ref().is_some_and(|tags| tags.have(version))
    }
}

impl Tags {
    fn have(&self, version: i64) -> bool {
        match self {
            Self::Any => true,
            Self::These(versions) => versions.contains(&version),
        }
    }
}

fn read(fields: &HeaderMap, name: header::HeaderName, weak: bool) -> Result<Option<Tags>, Failure> {
    let mut versions = Vec::new();
    let mut given = false;
    for value in fields.get_all(&name) {
        given = true;
        let malformed = || Failure::from(Problem::bad_request(format!("{name} is malformed")));
        let text = value.to_str().map_err(|_| malformed())?.trim();
        if text == "*" {
            return Ok(Some(Tags::Any));
        }
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                break;
            }
            let (is_weak, opaque) = match rest.strip_prefix("W/") {
                Some(opaque) => (true, opaque),
                None => (false, rest),
            };
            let opaque = opaque.strip_prefix('"').ok_or_else(malformed)?;
            let (opaque, after) = opaque.split_once('"').ok_or_else(malformed)?;
            if opaque.bytes().any(|byte| byte <= b' ') {
                return Err(malformed());
            }
            rest = after.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(malformed());
            }
            // A tag that we would write differently is not ours.
            let version = opaque.parse::<i64>().ok().filter(|version| version.to_string() == opaque);
            versions.extend(version.filter(|_| weak || !is_weak));
        }
        if text.is_empty() {
            return Err(malformed());
        }
    }
    Ok(given.then_some(Tags::These(versions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(pairs: &[(header::HeaderName, &'static str)]) -> Result<Conditions, u16> {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        Conditions::of(&pairs.collect()).map_err(|failure| failure.problem().status)
    }

    #[test]
    fn reads_are_answered_by_304_where_the_tag_is_known() {
        for (value, version, unchanged) in [
            ("\"3\"", 3, true),
            ("W/\"3\"", 3, true),
            ("\"2\", \"3\"", 3, true),
            ("\"2\" ,\t\"4\"", 3, false),
            ("*", 3, true),
            ("\"03\"", 3, false),
            ("\"abc\"", 3, false),
            ("\"a,\", \"3\"", 3, true),
        ] {
            let conditions = conditions(&[(header::IF_NONE_MATCH, value)]).expect("well-formed");
            assert_eq!(conditions.unchanged(version).ok(), Some(unchanged), "{value}");
        }
    }

    #[test]
    fn writes_go_to_the_version_that_was_named() {
        for (value, write) in [
            ("\"3\"", Write::At(3)),
            ("*", Write::Free),
            ("W/\"3\"", Write::At(0)),
            ("\"x\"", Write::At(0)),
            ("\"3\", \"4\"", Write::Depends),
        ] {
            assert_eq!(conditions(&[(header::IF_MATCH, value)]).map(|it| it.write()), Ok(write), "{value}");
        }
        let not_there = conditions(&[(header::IF_NONE_MATCH, "*")]).expect("well-formed");
        assert_eq!((not_there.write(), not_there.allow(1)), (Write::Depends, false));
        let either = conditions(&[(header::IF_MATCH, "\"3\", \"4\"")]).expect("well-formed");
        assert_eq!((either.allow(3), either.allow(4), either.allow(5)), (true, true, false));
    }

    #[test]
    fn if_match_alone_says_which_version_is_meant() {
        for (name, value, names) in [
            (header::IF_MATCH, "\"3\"", true),
            (header::IF_MATCH, "\"x\"", true),
            (header::IF_MATCH, "*", true),
            (header::IF_NONE_MATCH, "\"3\"", false),
            (header::IF_NONE_MATCH, "*", false),
        ] {
            let given = conditions(&[(name.clone(), value)]).expect("well-formed");
            assert_eq!(given.names_version(), names, "{name}: {value}");
        }
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for value in ["3", "\"3", "", "\"a b\"", "\"3\"\"4\"", "w/\"3\"", "\"3\" x"] {
            assert_eq!(conditions(&[(header::IF_MATCH, value)]).err(), Some(400), "{value}");
        }
    }

    #[test]
    fn a_tag_is_the_version_in_quotes() {
        for version in [1, 63, 64, i64::MAX] {
            assert_eq!(tag(version), format!("\"{version}\"").as_str());
        }
    }
}
