//! What holds for some files and not for others, by the path of the file that is sent, from a file of its own:
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
//! prefetch = "pub/manifest.txt"       # paths below the root, a line each, in the order they are read
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

/// No file of rules is longer, in bytes; what is was named by mistake.
pub const MAX_BYTES: u64 = 1 << 20;

/// What `security = true` adds: the OWASP Secure Headers Project's advice for files of any kind.
const SECURITY: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("content-security-policy", "frame-ancestors 'self'"),
];

/// Fields that say what the server itself has to say; a rule that set one would make two of it.
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

/// A file of rules.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rules {
    /// By status, the path of the page below the root.
    #[serde(default)]
    pub error_pages: BTreeMap<String, String>,
    /// In order.
    #[serde(default)]
    pub rule: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rule {
    /// Which paths it is for.
    pub path: String,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// Further fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether the fields of good practice are added.
    #[serde(default)]
    pub security: bool,
    /// Origins whose scripts may read the answers.
    pub cors: Option<Vec<String>>,
    /// Whether directories are listed.
    pub listing: Option<bool>,
    /// The file that tells which file is read after which.
    pub prefetch: Option<String>,
}

/// What is wrong with rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no TOML, or has keys that are none.
    #[error("{0}")]
    Syntax(String),
    /// A path that can match nothing.
    #[error("rule {0:?}: a path begins with / or *")]
    Path(String),
    /// No name of a field, or one that is the server's to send.
    #[error("rule {path:?}: {field:?} is no field a rule may set")]
    Field {
        /// Of which rule.
        path: String,
        /// Which.
        field: String,
    },
    /// A value that no field may have.
    #[error("rule {path:?}: the value of {field:?} is none a field may have")]
    Value {
        /// Of which rule.
        path: String,
        /// Of which field.
        field: String,
    },
    /// A status no page can be for.
    #[error("error-pages: {0:?} is no status of an error")]
    Status(String),
}

/// What the rules say of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Fields of every answer with the file, each with its line end.
    pub fields: String,
    /// Who may read the answers across origins.
    pub cors: Cors,
    /// Whether a directory here is listed.
    pub listing: bool,
}

/// Whose scripts may read an answer (Fetch, section 3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// Those of the same origin.
    #[default]
    Same,
    /// All.
    Any,
    /// Those of these origins too.
    Listed(Vec<String>),
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    /// [`Error`], about the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let rules: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::Syntax(format!("line {line}: {}", error.message()))
        })?;
        for rule in &rules.rule {
            rule.check()?;
        }
        for status in rules.error_pages.keys() {
            if !status.parse().is_ok_and(|status: u16| (400..600).contains(&status)) {
                return Err(Error::Status(status.clone()));
            }
        }
        Ok(rules)
    }

    /// What they say of a path that begins with its slash; `listing` where none says anything.
    pub fn policy(&self, path: &[u8], listing: bool) -> Policy {
        let mut policy = Policy { listing, ..Policy::default() };
        let mut cache_control = None;
        let mut fields: BTreeMap<String, &str> = BTreeMap::new();
        for rule in self.matching(path) {
            if rule.security {
                fields.extend(SECURITY.map(|(name, value)| (name.to_owned(), value)));
            }
            fields
                .extend(rule.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())));
            cache_control = rule.cache_control.as_deref().or(cache_control);
            policy.listing = rule.listing.unwrap_or(policy.listing);
            match rule.cors.as_deref() {
                None => {}
                Some([]) => policy.cors = Cors::Same,
                Some(origins) if origins.iter().any(|origin| origin == "*") => policy.cors = Cors::Any,
                Some(origins) => policy.cors = Cors::Listed(origins.to_vec()),
            }
        }
        let cache_control = cache_control.map(|value| ("cache-control", value));
        for (name, value) in
            cache_control.into_iter().chain(fields.iter().map(|(name, value)| (&**name, *value)))
        {
            policy.fields.extend([name, ": ", value, "\r\n"]);
        }
        if policy.cors == Cors::Any {
            policy.fields.push_str("access-control-allow-origin: *\r\n");
        }
        policy
    }

    fn matching<'r>(&'r self, path: &'r [u8]) -> impl Iterator<Item = &'r Rule> {
        self.rule.iter().filter(move |rule| glob(rule.path.as_bytes(), path))
    }
}

impl Rule {
    fn check(&self) -> Result<(), Error> {
        if !self.path.starts_with(['/', '*']) {
            return Err(Error::Path(self.path.clone()));
        }
        let cache_control = self.cache_control.iter().map(|value| ("cache-control", value));
        let cors = self.cors.iter().flatten().map(|value| ("cors", value));
        for (name, value) in self.headers.iter().map(|(name, value)| (&**name, value)) {
            if !is_token(name) || OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                return Err(Error::Field { path: self.path.clone(), field: name.to_owned() });
            }
            self.check_value(name, value)?;
        }
        cache_control.chain(cors).try_for_each(|(name, value)| self.check_value(name, value))
    }

    fn check_value(&self, field: &str, value: &str) -> Result<(), Error> {
        // RFC 9110, section 5.5, without what is obsolete.
        let valid = value.trim() == value && value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        if valid { Ok(()) } else { Err(Error::Value { path: self.path.clone(), field: field.to_owned() }) }
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether `text` is like `pattern`, in which `*` stands for anything.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = memchr::memmem::find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, like) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("*", "/a/b", true),
            ("/a/*", "/a/b/c", true),
            ("/a/*", "/a", false),
            ("*.js", "/x/y.js", true),
            ("*.js", "/x/y.js.map", false),
            ("/a/*.min.*", "/a/b.min.js", true),
            ("/a*a", "/a", false),
            ("/*b*b", "/ab", false),
            ("/**b", "/ab", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), like, "{pattern} {text}");
        }
    }

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
             x-content-type-options: nosniff\r\n"
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
        ] {
            assert_eq!(Rules::parse(text).expect_err(text).to_string(), error);
        }
        assert!(
            matches!(Rules::parse("\n[[rule]]\nfoo = 1"), Err(Error::Syntax(text)) if text.starts_with("line 3:"))
        );
    }
}
