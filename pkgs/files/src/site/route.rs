//! Rules that answer a path with something other than its own file.
//!
//! - `redirect = "/new/$1?of=$2"`: tells the client to go elsewhere, with its own query after that of the rule, unless
//!   `query = false`.
//! - `rewrite = "/app/$1"`: answers with another path, once: rules of that path are not followed.
//! - `try = ["$path", "$path.html", "/index.html"]`: answers with the first that exists, with status 200. `fallback`
//!   adds one after all of these; without `try`, after the path itself. A requested directory without its final slash
//!   is answered with a redirect after most of the others: see [`Candidates`](super::lookup::Candidates).
//!
//! For each, the last matching rule counts. A path made by a rule is checked like a client's: it leads downwards, and
//! to no name that starts with a dot.

use percent_encoding::percent_encode;

use super::pattern::{self, Pattern, Template};
use crate::http::path::{self, ESCAPED, PathError};

/// The most paths in a `try`, since each may need a look at the disk.
const MAX_TRIES: usize = 8;

/// A rule's routing, as written.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteTargets<'r> {
    /// Where the client should go instead.
    pub redirect: Option<&'r str>,
    /// The status of that redirect.
    pub status: Option<u16>,
    /// Whether the client's query is passed on.
    pub query: Option<bool>,
    /// The path that is answered instead.
    pub rewrite: Option<&'r str>,
    /// The paths of which the first existing one is answered.
    pub tries: Option<&'r [String]>,
    /// The path that is answered if nothing else exists.
    pub fallback: Option<&'r str>,
}

/// Where a rule leads.
#[derive(Clone, Debug, Default)]
pub struct RouteRule {
    path: Option<Move>,
    tries: Option<Vec<Template>>,
}

#[derive(Clone, Debug)]
enum Move {
    Stay,
    Redirect(Redirect),
    Rewrite(Template),
}

#[derive(Clone, Debug)]
struct Redirect {
    status: u16,
    to: Template,
    /// Whether to another path on the same host.
    own: bool,
    /// What follows the path: a query, and a fragment.
    query: Option<Template>,
    fragment: Option<Template>,
    /// Whether the client's query is passed on.
    passes_query: bool,
}

/// Where a request leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To what its path names.
    Direct,
    /// To the first of these that exists.
    TryFiles(Vec<Vec<u8>>),
    /// The client is told to go elsewhere.
    Redirected {
        /// The status.
        status: u16,
        /// The target.
        location: String,
    },
    /// To something that can't be a file.
    Rejected(PathError),
}

/// Why a rule's routing isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An invalid target, or one whose host a client could choose.
    #[error(
        "a redirect leads to a path with one slash in front, or to http:// or https://, a host and a path"
    )]
    Target,
    /// A character that isn't allowed in a URL.
    #[error("a URL has no such character: {0:?}")]
    Character(char),
    /// A status that isn't a redirect's.
    #[error("{0} is no status of a redirect")]
    Status(u16),
    /// A status without a redirect.
    #[error("a status goes with a redirect")]
    StatusAlone,
    /// A `query` without a redirect.
    #[error("query goes with a redirect")]
    QueryAlone,
    /// Two targets at once.
    #[error("redirect or rewrite, not both")]
    Both,
    /// An invalid path.
    #[error("{0:?} is no path: those begin with / or $path")]
    Path(String),
    /// Too many paths.
    #[error("a try has at most {MAX_TRIES} paths")]
    Tries,
    /// An invalid template.
    #[error(transparent)]
    Template(#[from] pattern::Error),
}

impl RouteRule {
    /// The routing of a rule for these paths.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(rule: &RouteTargets<'_>, pattern: &Pattern) -> Result<Self, Error> {
        let path = match (rule.redirect, rule.rewrite) {
            (Some(_), Some(_)) => return Err(Error::Both),
            (None, None) => None,
            (Some(""), _) | (_, Some("")) => Some(Move::Stay),
            (Some(to), _) => Some(Move::Redirect(Redirect::new(to, rule, pattern)?)),
            (_, Some(to)) => Some(Move::Rewrite(template(to, pattern)?)),
        };
        if !matches!(path, Some(Move::Redirect(_))) {
            if rule.status.is_some() {
                return Err(Error::StatusAlone);
            }
            if rule.query.is_some() {
                return Err(Error::QueryAlone);
            }
        }
        let tries = match (rule.tries, rule.fallback) {
            (None, None) => None,
            (None | Some([]), Some("")) | (Some([]), None) => Some(Vec::new()),
            (tries, fallback) => {
                let itself = ["$path".to_owned()];
                let tries = tries.filter(|tries| !tries.is_empty()).unwrap_or(&itself);
                let fallback = fallback.filter(|fallback| !fallback.is_empty());
                let all = tries.iter().map(String::as_str).chain(fallback);
                Some(all.map(|to| template(to, pattern)).collect::<Result<_, _>>()?)
            }
        };
        if tries.as_ref().is_some_and(|tries: &Vec<_>| tries.len() > MAX_TRIES) {
            return Err(Error::Tries);
        }
        Ok(Self { path, tries })
    }

    /// Whether there is no routing.
    pub fn is_empty(&self) -> bool {
        self.path.is_none() && self.tries.is_none()
    }
}

impl Redirect {
    fn new(to: &str, rule: &RouteTargets<'_>, pattern: &Pattern) -> Result<Self, Error> {
        let status = rule.status.unwrap_or(301);
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err(Error::Status(status));
        }
        // RFC 3986, appendix A: a URI's characters, and $ for inserted text.
        let fits = |byte: char| byte.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(byte);
        if let Some(other) = to.chars().find(|byte| !fits(*byte)) {
            return Err(Error::Character(other));
        }
        let own = to.starts_with('/') && !to.starts_with("//") || to.starts_with("$path");
        if !own {
            // Inserted text comes after the host and the slash that ends it, so that no client can extend the host.
            let rest =
                to.strip_prefix("https://").or_else(|| to.strip_prefix("http://")).ok_or(Error::Target)?;
            let (host, _) = rest.split_once('/').ok_or(Error::Target)?;
            let is_host = |byte: char| byte.is_ascii_alphanumeric() || "-._:[]".contains(byte);
            if host.is_empty() || !host.chars().all(is_host) {
                return Err(Error::Target);
            }
        }
        let (to, fragment) = to.split_once('#').map_or((to, None), |(to, end)| (to, Some(end)));
        let (to, query) = to.split_once('?').map_or((to, None), |(to, end)| (to, Some(end)));
        let parse = |part: &str| Template::parse(part, pattern);
        Ok(Self {
            status,
            to: parse(to)?,
            own,
            query: query.map(parse).transpose()?,
            fragment: fragment.map(parse).transpose()?,
            passes_query: rule.query.unwrap_or(true),
        })
    }

    /// The URL it makes from a path, which starts with its slash.
    fn location(&self, path: &[u8], captures: &pattern::Captures<'_>, query: Option<&str>) -> String {
        let mut location = self.to.escape(path, captures);
        if self.own {
            // Two slashes at the start would name a host.
            location = format!("/{}", location.trim_start_matches('/'));
        }
        let own = self.query.as_ref().map(|query| query.escape_query(path, captures));
        let asked = query.filter(|query| self.passes_query && !query.is_empty());
        for (mark, query) in ["?", "&"].into_iter().zip(own.as_deref().into_iter().chain(asked)) {
            location.extend([mark, query]);
        }
        if let Some(fragment) = &self.fragment {
            location.extend(["#", &fragment.escape(path, captures)]);
        }
        location
    }
}

fn template(to: &str, pattern: &Pattern) -> Result<Template, Error> {
    if !to.starts_with('/') && !to.starts_with("$path") {
        return Err(Error::Path(to.to_owned()));
    }
    Ok(Template::parse(to, pattern)?)
}

impl Route {
    /// Where rules lead a request for a path below the root.
    pub fn of<'r>(
        rules: impl DoubleEndedIterator<Item = (&'r Pattern, &'r RouteRule)> + Clone,
        path: &[u8],
        query: Option<&str>,
        hidden: bool,
    ) -> Self {
        let mut at = [b"/", path].concat();
        let said = rules.clone().rev().find_map(|(pattern, rule)| {
            let to = rule.path.as_ref()?;
            Some((to, pattern.captures(&at)?))
        });
        let mut moved = false;
        match said {
            None | Some((Move::Stay, _)) => {}
            Some((Move::Redirect(redirect), captures)) => {
                let location = redirect.location(&at, &captures, query);
                // A redirect to itself would never end.
                let itself = || percent_encode(&at, ESCAPED).to_string();
                if !redirect.own
                    || redirect.query.is_some()
                    || location.split(['?', '#']).next() != Some(&itself())
                {
                    return Self::Redirected { status: redirect.status, location };
                }
            }
            Some((Move::Rewrite(to), captures)) => match path::normal(&to.expand(&at, &captures), hidden) {
                Ok(to) => {
                    moved = to != path;
                    at = [b"/", &to[..]].concat();
                }
                Err(refused) => return Self::Rejected(refused),
            },
        }
        let tries = rules.clone().rev().find_map(|(pattern, rule)| {
            let tries = rule.tries.as_ref()?;
            Some((tries, pattern.captures(&at)?))
        });
        match tries {
            Some((tries, captures)) if !tries.is_empty() => {
                let paths = tries.iter().map(|to| path::normal(&to.expand(&at, &captures), hidden));
                // A path that isn't valid counts as not existing.
                Self::TryFiles(paths.filter_map(Result::ok).collect())
            }
            _ if moved => Self::TryFiles(vec![at.split_off(1)]),
            _ => Self::Direct,
        }
    }

    /// Whether the file that this path names is the answer to the request.
    pub fn is_direct(&self, path: &[u8]) -> bool {
        match self {
            Self::Direct => true,
            Self::TryFiles(paths) => paths.first().is_some_and(|first| first == path),
            Self::Redirected { .. } | Self::Rejected(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::rules::Rules;

    const RULES: &str = r#"
        [[rule]]
        path = "/old*"
        redirect = "/$1"
        [[rule]]
        path = "/old/kept"
        redirect = ""
        [[rule]]
        path = "/away/*"
        redirect = "https://new.example/$1?from=old#top"
        status = 308
        [[rule]]
        path = "/blog/*/*"
        redirect = "/archive/$1?post=$2"
        [[rule]]
        path = "/shop/*"
        redirect = "https://shop.example/$path?from=$path&$$=$1#$1"
        query = false
        [[rule]]
        path = "/loop/*"
        redirect = "/loop/$1"
        [[rule]]
        match = "^/u/([0-9]+)$"
        rewrite = "/users/$1.html"
        [[rule]]
        path = "/up/*"
        rewrite = "/x/.$1"
        [[rule]]
        path = "/app/*"
        try = ["$path", "$path.html", "$path/"]
        fallback = "/app/index.html"
        [[rule]]
        path = "/app/api/*"
        try = []
        [[rule]]
        path = "/short/*"
        rewrite = "/app/$1"
    "#;

    #[test]
    fn requests_are_led_as_the_last_rule_has_it() {
        let rules = Rules::parse(RULES).expect("rules");
        let elsewhere = |status, location: &str| Route::Redirected { status, location: location.to_owned() };
        let first =
            |paths: &[&str]| Route::TryFiles(paths.iter().map(|path| path.as_bytes().to_vec()).collect());
        for (path, query, route) in [
            ("a", None, Route::Direct),
            ("old/a b", Some("x=1"), elsewhere(301, "/a%20b?x=1")),
            ("old/kept", None, Route::Direct),
            // As few slashes at the start as possible, so that no host is named.
            ("old//evil.example", None, elsewhere(301, "/evil.example")),
            ("old/\\evil.example", None, elsewhere(301, "/%5Cevil.example")),
            ("old/a\r\nset-cookie: x", None, elsewhere(301, "/a%0D%0Aset-cookie:%20x")),
            ("away/x?y", Some("b"), elsewhere(308, "https://new.example/x%3Fy?from=old&b#top")),
            ("away/@evil.example", None, elsewhere(308, "https://new.example/@evil.example?from=old#top")),
            // What is captured adds no parameter.
            ("blog/2024/a&b=c", Some("x=1"), elsewhere(301, "/archive/2024?post=a%26b%3Dc&x=1")),
            ("blog/2024/a+b;c#d", None, elsewhere(301, "/archive/2024?post=a%2Bb%3Bc%23d")),
            (
                "shop/a&b#c",
                Some("x=1"),
                elsewhere(301, "https://shop.example/shop/a&b%23c?from=/shop/a%26b%23c&$=a%26b%23c#a&b%23c"),
            ),
            ("loop/a", Some("x"), Route::Direct),
            ("u/42", None, first(&["users/42.html"])),
            ("u/x", None, Route::Direct),
            ("up/a", None, Route::Rejected(PathError::Missing)),
            ("up/.", None, Route::Rejected(PathError::Bad)),
            ("up/./../secret", None, Route::Rejected(PathError::Bad)),
            ("app/x", None, first(&["app/x", "app/x.html", "app/x/", "app/index.html"])),
            ("app/api/x", None, Route::Direct),
            ("short/x", None, first(&["app/x", "app/x.html", "app/x/", "app/index.html"])),
        ] {
            assert_eq!(Route::of(rules.all_routes(), path.as_bytes(), query, false), route, "{path}");
        }
    }
}
