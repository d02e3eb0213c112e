//! What a token says.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The longest name that is taken for somebody's, in characters.
const NAME_CHARACTERS: usize = 128;

/// The claims of a token that was found good.
#[derive(Clone, Debug, Deserialize)]
pub struct Claims {
    /// Who it is about, as the issuer has them: never of anybody else, and never another for them.
    pub sub: String,
    /// When it ends, in seconds since 1970.
    pub exp: u64,
    /// Who says so.
    pub(crate) iss: String,
    /// When it was made.
    #[serde(default)]
    pub(crate) iat: Option<u64>,
    /// Of which sign-in.
    #[serde(default)]
    pub(crate) nonce: Option<String>,
    /// For which client, where it is for several.
    #[serde(default)]
    pub(crate) azp: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Claims {
    /// The texts of a claim: an array of them, as groups are, or one with spaces, as `scope` is (RFC 8693).
    pub fn texts<'a>(&'a self, name: &str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match self.others.get(name) {
            Some(Value::String(text)) => Box::new(text.split_ascii_whitespace()),
            Some(Value::Array(values)) => Box::new(values.iter().filter_map(Value::as_str)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// What the one it is about is called by this claim; what the issuer calls them otherwise.
    #[must_use]
    pub fn name(&self, claim: &str) -> String {
        let named = self.others.get(claim).and_then(Value::as_str).filter(|name| !name.trim().is_empty());
        named.unwrap_or(&self.sub).chars().take(NAME_CHARACTERS).collect()
    }
}
