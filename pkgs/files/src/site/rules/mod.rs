//! Settings for some files and not others, by the path of the file that is sent. They are in a separate file:
//!
//! ```toml
//! [error-pages]                       # from below the root, read at start and at SIGHUP
//! 404 = "errors/404.html"
//!
//! [[rule]]                            # all that match apply, later ones over earlier ones
//! path = "*"                          # `*` stands for anything, slashes too
//! security = true                     # the fields of SECURITY below
//! headers = { x-served-by = "linerate" }
//!
//! [[rule]]
//! path = "/assets/*"
//! cache-control = "public, max-age=31536000, immutable"
//! cors = ["https://app.example"]      # or ["*"]
//!
//! [[rule]]
//! path = "/pub/*"
//! listing = true
//! archive = ["zip", "tar.zst"]        # all below a directory, as `?archive=zip`
//! server-timing = true                # how long the answer took, for a browser's developer
//! prefetch = "pub/manifest.txt"       # paths below the root, a line each, in the order they are read
//!
//! [[rule]]
//! path = "/index.html"                # by HTTP/2 and 3 before the page, and in its head
//! early-hints = ["</style.css>; rel=preload; as=style"]
//!
//! [[rule]]
//! path = "/app/*"
//! fallback = "/app/index.html"        # sent, with 200, for what is not there
//!
//! [[rule]]
//! match = "^/u/([0-9]+)$"             # a regular expression instead of a path
//! redirect = "/users/$1"              # 301, or as `status` says; the query is kept, unless `query = false`
//! ```
//!
//! Routing rules (`redirect`, `rewrite`, `try`, `fallback`) match the requested path: see [`route`](super::route). All
//! others match the path of the file that is sent; access rules ([`access`]) match both.

pub mod archive;
pub mod error;
pub mod policy;
pub mod site_rule;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use archive::{ArchiveFormat, MOST_ENTRIES};
pub use error::Error;
pub use policy::{Cors, Policy};
use site_rule::{SiteRule, UnknownHosts};

use super::access::{self, Referrers};
use super::pattern::Pattern;
use super::route::{RouteRule, RouteTargets};
use super::secrets::{KeyRule, RealmRule};

/// The longest rules file, in bytes; anything longer was named by mistake.
pub const MAX_BYTES: u64 = 1 << 20;

/// The headers that `security = true` adds, as the OWASP Secure Headers Project recommends for files of any kind.
const SECURITY: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("content-security-policy", "frame-ancestors 'self'"),
];

/// Headers that the server itself sends, which a rule would duplicate.
const OWN: [&str; 16] = [
    "accept-ranges",
    "access-control-allow-origin",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "trailer",
    "transfer-encoding",
    "vary",
];

/// The default sizes of texts to compress, in bytes: smaller ones fit a packet anyway, and larger ones take about a
/// second.
const COMPRESSED: (u64, u64) = (1024, 4 << 20);

/// The largest configurable size, in bytes, since a thread holds the file and its result in memory.
const COMPRESSED_MOST: u64 = 16 << 20;

/// The most links of an interim response; browsers use only a few.
const MAX_LINKS: usize = 16;

/// A rules file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rules {
    /// By status, the page's path below the root.
    #[serde(default)]
    pub error_pages: BTreeMap<String, String>,
    /// By name, groups of users with passwords.
    #[serde(default)]
    pub realm: BTreeMap<String, RealmRule>,
    /// By name, the keys that sign URLs.
    #[serde(default)]
    pub key: BTreeMap<String, KeyRule>,
    /// In order.
    #[serde(default)]
    pub rule: Vec<Rule>,
    /// Further sites, with rules of their own.
    #[serde(default)]
    pub site: Vec<SiteRule>,
    /// What is answered for hosts that have no site.
    #[serde(default)]
    pub unknown_hosts: UnknownHosts,
}

/// One rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rule {
    /// The paths it is for: `*` stands for anything.
    #[serde(default)]
    pub path: String,
    /// The same as a regular expression, instead.
    pub r#match: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether recommended security headers are added.
    #[serde(default)]
    pub security: bool,
    /// Origins whose scripts may read the answers.
    pub cors: Option<Vec<String>>,
    /// Whether directories are listed.
    pub listing: Option<bool>,
    /// The formats in which whole directories are available, `zip` and `tar.zst`. Empty for none.
    pub archive: Option<Vec<ArchiveFormat>>,
    /// The most files and directories in an archive, up to 100,000. 10,000 by default.
    pub archive_max_entries: Option<u32>,
    /// The most bytes of all files in an archive. 4 GiB by default.
    pub archive_max_bytes: Option<u64>,
    /// What pages need in addition, as `Link` headers: `</style.css>; rel=preload; as=style`. Empty for none.
    pub early_hints: Option<Vec<String>>,
    /// Whether answers say how long they took.
    pub server_timing: Option<bool>,
    /// The manifest, which says which file is read after which.
    pub prefetch: Option<String>,
    /// Where the client should go instead: a path or a URL. Empty to cancel an earlier rule's.
    pub redirect: Option<String>,
    /// The redirect's status: 301, 302, 303, 307 or 308. 301 by default.
    pub status: Option<u16>,
    /// Whether the client's query follows the redirect's own. True by default.
    pub query: Option<bool>,
    /// The path that is answered instead. Empty to cancel an earlier rule's.
    pub rewrite: Option<String>,
    /// The paths of which the first existing one is answered. Empty to cancel an earlier rule's.
    pub r#try: Option<Vec<String>>,
    /// The path that is answered if nothing else exists; the same as `try` with the path itself before it.
    pub fallback: Option<String>,
    /// The origins whose pages may refer to it, in which `*` stands for anything; `none` allows requests without a
    /// referrer. Empty for all.
    pub referrers: Option<Vec<String>>,
    /// The realm it requires. Empty for none.
    pub auth: Option<String>,
    /// The key that its URL has to be signed with. Empty for none.
    pub signed: Option<String>,
    /// Whether texts are compressed that have no encodings next to them.
    pub compress: Option<bool>,
    /// The shortest text to compress, in bytes. 1 KiB by default.
    pub compress_min: Option<u64>,
    /// The longest, up to 16 MiB. 4 MiB by default.
    pub compress_max: Option<u64>,
    /// The rule in the form that is applied.
    #[serde(skip)]
    made: Option<Made>,
}

/// The parts of a rule that are prepared once.
#[derive(Clone, Debug)]
struct Made {
    pattern: Pattern,
    route: RouteRule,
    referrers: Option<Referrers>,
}

impl Rules {
    /// Parses rules.
    ///
    /// # Errors
    /// [`Error`], about the first mistake.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut rules: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::Syntax(format!("line {line}: {}", error.message()))
        })?;
        rules.complete()?;
        site_rule::check(&mut rules.site)?;
        rules.site.iter_mut().try_for_each(SiteRule::complete)?;
        Ok(rules)
    }

    /// Checks everything about one site, and prepares it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn complete(&mut self) -> Result<(), Error> {
        let rules = self;
        let mut all = std::mem::take(&mut rules.rule);
        for rule in &mut all {
            rule.check()?;
            rule.made = Some(rule.make()?);
            for (kind, name, is_known) in [
                ("realm", &rule.auth, rule.auth.as_ref().is_none_or(|name| rules.realm.contains_key(name))),
                ("key", &rule.signed, rule.signed.as_ref().is_none_or(|name| rules.key.contains_key(name))),
            ] {
                if let Some(name) = name.as_ref().filter(|name| !is_known && !name.is_empty()) {
                    let source = access::Error::Undeclared(format!("[{kind}.{name}]"));
                    return Err(Error::Access { path: rule.name(), source });
                }
            }
        }
        rules.rule = all;
        for status in rules.error_pages.keys() {
            if !status.parse().is_ok_and(|status: u16| (400..600).contains(&status)) {
                return Err(Error::Status(status.clone()));
            }
        }
        Ok(())
    }

    /// The combined rules for a path, which starts with its slash; `listing` is the default.
    pub fn policy(&self, path: &[u8], listing: bool) -> Policy {
        let mut policy = Policy { listing, ..Policy::default() };
        let mut cache_control = None;
        let (mut compress, mut smallest, mut largest) = (false, COMPRESSED.0, COMPRESSED.1);
        let mut fields: BTreeMap<String, &str> = BTreeMap::new();
        for rule in self.matching(path) {
            if rule.security {
                fields.extend(SECURITY.map(|(name, value)| (name.to_owned(), value)));
            }
            fields
                .extend(rule.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())));
            cache_control = rule.cache_control.as_deref().or(cache_control);
            compress = rule.compress.unwrap_or(compress);
            smallest = rule.compress_min.unwrap_or(smallest);
            largest = rule.compress_max.unwrap_or(largest);
            policy.listing = rule.listing.unwrap_or(policy.listing);
            policy.server_timing = rule.server_timing.unwrap_or(policy.server_timing);
            if let Some(formats) = &rule.archive {
                policy.archive.formats.clone_from(formats);
            }
            policy.archive.max_entries = rule.archive_max_entries.unwrap_or(policy.archive.max_entries);
            policy.archive.max_bytes = rule.archive_max_bytes.unwrap_or(policy.archive.max_bytes);
            match rule.cors.as_deref() {
                None => {}
                Some([]) => policy.cors = Cors::Same,
                Some(origins) if origins.iter().any(|origin| origin == "*") => policy.cors = Cors::Any,
                Some(origins) => policy.cors = Cors::Listed(origins.to_vec()),
            }
        }
        policy.compressed = compress.then_some(smallest..=largest);
        for link in self.early_hints(path) {
            policy.fields.extend(["link: ", link, "\r\n"]);
        }
        let cache_control = cache_control.map(|value| ("cache-control", value));
        for (name, value) in
            cache_control.into_iter().chain(fields.iter().map(|(name, value)| (&**name, *value)))
        {
            policy.fields.extend([name, ": ", value, "\r\n"]);
        }
        match policy.cors {
            Cors::Same => {}
            Cors::Any => policy.fields.push_str("access-control-allow-origin: *\r\n"),
            // Even without an `Origin`, since another request for it may have one.
            Cors::Listed(_) => policy.fields.push_str("vary: origin\r\n"),
        }
        policy
    }

    /// Whether any rule leads requests elsewhere.
    pub fn routes(&self) -> bool {
        self.made().any(|made| !made.route.is_empty())
    }

    /// What clients need in addition to a path, which starts with its slash, as values of `Link`.
    pub fn early_hints<'r>(&'r self, path: &[u8]) -> &'r [String] {
        let matches = |rule: &&Rule| rule.made.as_ref().is_some_and(|made| made.pattern.matches(path));
        let mut said = self.rule.iter().rev().filter(matches);
        said.find_map(|rule| rule.early_hints.as_deref()).unwrap_or_default()
    }

    /// Whether any rule has such additional files.
    pub fn has_early_hints(&self) -> bool {
        self.rule.iter().any(|rule| rule.early_hints.as_ref().is_some_and(|links| !links.is_empty()))
    }

    /// Whether any rule makes answers say how long they took.
    pub fn has_server_timing(&self) -> bool {
        self.rule.iter().any(|rule| rule.server_timing == Some(true))
    }

    /// Whether any rule allows archives.
    pub fn has_archives(&self) -> bool {
        self.rule.iter().any(|rule| rule.archive.as_ref().is_some_and(|formats| !formats.is_empty()))
    }

    /// Whether any rule restricts access.
    pub fn restricts_access(&self) -> bool {
        self.made().any(|made| made.referrers.is_some())
            || self.rule.iter().any(|rule| rule.auth.is_some() || rule.signed.is_some())
    }

    /// The realm that a path, which starts with its slash, requires; none if it requires no password.
    pub fn auth<'r>(&'r self, path: &'r [u8]) -> Option<&'r str> {
        self.matching(path).filter_map(|rule| rule.auth.as_deref()).last().filter(|name| !name.is_empty())
    }

    /// The key that a path's URL has to be signed with.
    pub fn signed<'r>(&'r self, path: &'r [u8]) -> Option<&'r str> {
        self.matching(path).filter_map(|rule| rule.signed.as_deref()).last().filter(|name| !name.is_empty())
    }

    /// The routing of each pattern, in order.
    pub fn all_routes(&self) -> impl DoubleEndedIterator<Item = (&Pattern, &RouteRule)> + Clone {
        self.made().map(|made| (&made.pattern, &made.route))
    }

    /// Who may refer to a path, which starts with its slash; none if everybody may.
    pub fn referrers(&self, path: &[u8]) -> Option<&Referrers> {
        let mut said =
            self.made().filter(|made| made.pattern.matches(path)).filter_map(|made| made.referrers.as_ref());
        said.next_back().filter(|referrers| !referrers.is_empty())
    }

    /// The rules for a path, with their positions among all rules, counted from 1.
    pub fn numbered<'r>(&'r self, path: &'r [u8]) -> impl Iterator<Item = (usize, &'r Rule)> {
        let is_for = move |rule: &Rule| rule.made.as_ref().is_some_and(|made| made.pattern.matches(path));
        (1..).zip(&self.rule).filter(move |(_, rule)| is_for(rule))
    }

    fn made(&self) -> impl DoubleEndedIterator<Item = &Made> + Clone {
        self.rule.iter().filter_map(|rule| rule.made.as_ref())
    }

    fn matching<'r>(&'r self, path: &'r [u8]) -> impl Iterator<Item = &'r Rule> {
        self.numbered(path).map(|(_, rule)| rule)
    }
}

impl Rule {
    /// Its name in errors: its path or expression.
    fn name(&self) -> String {
        self.r#match.as_ref().unwrap_or(&self.path).clone()
    }

    /// Prepares it.
    fn make(&self) -> Result<Made, Error> {
        let pattern = match &self.r#match {
            None => Pattern::Glob(self.path.as_bytes().into()),
            Some(regex) => {
                Pattern::regex(regex).map_err(|source| Error::Pattern { path: self.name(), source })?
            }
        };
        let route = RouteRule::new(&self.targets(), &pattern)
            .map_err(|source| Error::Route { path: self.name(), source })?;
        let referrers = self.referrers.as_deref().map(Referrers::new).transpose();
        let referrers = referrers.map_err(|source| Error::Access { path: self.name(), source })?;
        Ok(Made { pattern, route, referrers })
    }

    fn targets(&self) -> RouteTargets<'_> {
        RouteTargets {
            redirect: self.redirect.as_deref(),
            status: self.status,
            query: self.query,
            rewrite: self.rewrite.as_deref(),
            tries: self.r#try.as_deref(),
            fallback: self.fallback.as_deref(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.compress_max.is_some_and(|most| most > COMPRESSED_MOST) {
            return Err(Error::Compressed(self.name()));
        }
        if self.archive_max_entries.is_some_and(|most| most > MOST_ENTRIES) {
            return Err(Error::Entries(self.name()));
        }
        let links = self.early_hints.as_deref().unwrap_or_default();
        // RFC 8288, section 3: a target, and its relation to the page.
        let is_link = |link: &String| link.starts_with('<') && link.contains(">;") && link.contains("rel=");
        if let Some(link) = links.iter().find(|link| !is_link(link)) {
            return Err(Error::Link { path: self.name(), link: link.clone() });
        }
        if links.len() > MAX_LINKS {
            return Err(Error::Links(self.name()));
        }
        links.iter().try_for_each(|link| self.check_value("early-hints", link))?;
        match &self.r#match {
            Some(_) if !self.path.is_empty() => return Err(Error::Both(self.path.clone())),
            None if !self.path.starts_with(['/', '*']) => return Err(Error::Path(self.path.clone())),
            _ => {}
        }
        let cache_control = self.cache_control.iter().map(|value| ("cache-control", value));
        let cors = self.cors.iter().flatten().map(|value| ("cors", value));
        for (name, value) in self.headers.iter().map(|(name, value)| (&**name, value)) {
            if !is_token(name) || OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                return Err(Error::Field { path: self.name(), field: name.to_owned() });
            }
            self.check_value(name, value)?;
        }
        cache_control.chain(cors).try_for_each(|(name, value)| self.check_value(name, value))
    }

    fn check_value(&self, field: &str, value: &str) -> Result<(), Error> {
        // RFC 9110, section 5.5, without its obsolete parts.
        let valid = value.trim() == value && value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        if valid { Ok(()) } else { Err(Error::Value { path: self.name(), field: field.to_owned() }) }
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rules_go_over_earlier_ones() {
        let rules = Rules::parse(
            "[[rule]]\npath = '*'\nsecurity = true\nlisting = true\ncache-control = 'no-cache'\n\
             [[rule]]\npath = '/a/*'\ncache-control = 'max-age=1'\nheaders = { X-A = '1', Referrer-Policy = 'origin' }\n\
             cors = ['https://x.example']\n\
             [[rule]]\npath = '*.txt'\ncors = ['*']\nlisting = false\n",
        )
        .expect("rules");
        let policy = rules.policy(b"/a/b", false);
        assert_eq!(
            policy.fields,
            "cache-control: max-age=1\r\ncontent-security-policy: frame-ancestors 'self'\r\n\
             cross-origin-opener-policy: same-origin\r\nreferrer-policy: origin\r\nx-a: 1\r\n\
             x-content-type-options: nosniff\r\nvary: origin\r\n"
        );
        assert_eq!((policy.cors, policy.listing), (Cors::Listed(vec!["https://x.example".to_owned()]), true));
        let policy = rules.policy(b"/c.txt", false);
        assert!(policy.fields.starts_with("cache-control: no-cache\r\n"));
        assert_eq!((policy.cors, policy.listing), (Cors::Any, false));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for (text, error) in [
            ("[[rule]]\npath = 'a'", "rule \"a\": a path begins with / or *"),
            (
                "[[rule]]\npath = '/'\nheaders = { Date = 'x' }",
                "rule \"/\": \"Date\" is no field a rule may set",
            ),
            (
                "[[rule]]\npath = '/'\nheaders = { 'a b' = 'x' }",
                "rule \"/\": \"a b\" is no field a rule may set",
            ),
            (
                "[[rule]]\npath = '/'\nheaders = { a = \"x\\r\\ny: z\" }",
                "rule \"/\": the value of \"a\" is none a field may have",
            ),
            (
                "[[rule]]\npath = '/'\ncache-control = \"é\"",
                "rule \"/\": the value of \"cache-control\" is none a field may have",
            ),
            ("[error-pages]\n200 = 'x'", "error-pages: \"200\" is no status of an error"),
            ("[[rule]]\ncors = ['*']", "rule \"\": a path begins with / or *"),
            ("[[rule]]\npath = '/a'\nmatch = 'b'", "rule \"/a\": path or match, not both"),
            ("[[rule]]\nmatch = '('", "rule \"(\": unclosed group"),
            (
                "[[rule]]\npath = '/a'\nredirect = '//evil.example'",
                "rule \"/a\": a redirect leads to a path with one slash in front, or to http:// or https://, a host and a path",
            ),
            (
                "[[rule]]\npath = '/*'\nredirect = 'https://a.example$1'",
                "rule \"/*\": a redirect leads to a path with one slash in front, or to http:// or https://, a host and a path",
            ),
            (
                "[[rule]]\npath = '/*'\nredirect = 'https://$1/'",
                "rule \"/*\": a redirect leads to a path with one slash in front, or to http:// or https://, a host and a path",
            ),
            (
                "[[rule]]\npath = '/a'\nredirect = \"/b\\r\\nx: y\"",
                "rule \"/a\": a URL has no such character: '\\r'",
            ),
            (
                "[[rule]]\npath = '/a'\nredirect = '/b'\nstatus = 200",
                "rule \"/a\": 200 is no status of a redirect",
            ),
            ("[[rule]]\npath = '/a'\nstatus = 301", "rule \"/a\": a status goes with a redirect"),
            (
                "[[rule]]\npath = '/a'\nrewrite = '/b'\nquery = false",
                "rule \"/a\": query goes with a redirect",
            ),
            (
                "[[rule]]\npath = '/*'\nredirect = '/a?$2'",
                "rule \"/*\": there is no $2: the pattern has 1 of them",
            ),
            (
                "[[rule]]\npath = '/*'\nredirect = '/a#$x'",
                "rule \"/*\": behind a $ comes a digit from 1 to 9, path, or another $",
            ),
            (
                "[[rule]]\npath = '/a'\nredirect = '/b'\nrewrite = '/c'",
                "rule \"/a\": redirect or rewrite, not both",
            ),
            (
                "[[rule]]\npath = '/a'\nrewrite = 'b'",
                "rule \"/a\": \"b\" is no path: those begin with / or $path",
            ),
            (
                "[[rule]]\npath = '/a'\nrewrite = '/$1'",
                "rule \"/a\": there is no $1: the pattern has 0 of them",
            ),
            (
                "[[rule]]\npath = '/a'\ntry = ['$uri']",
                "rule \"/a\": \"$uri\" is no path: those begin with / or $path",
            ),
            (
                "[[rule]]\npath = '/a'\ncompress-max = 16777217",
                "rule \"/a\": compress-max is at most 16777216",
            ),
            ("[[rule]]\npath = '/a'\nauth = 'x'", "rule \"/a\": there is no [realm.x]"),
            ("[[rule]]\npath = '/a'\nsigned = 'x'", "rule \"/a\": there is no [key.x]"),
            (
                "[[rule]]\npath = '/a'\nreferrers = ['example.org']",
                "rule \"/a\": \"example.org\" is no origin: those are like https://www.example.org, or none",
            ),
        ] {
            assert_eq!(Rules::parse(text).expect_err(text).to_string(), error);
        }
        assert!(
            matches!(Rules::parse("\n[[rule]]\nfoo = 1"), Err(Error::Syntax(text)) if text.starts_with("line 3:"))
        );
    }
}
