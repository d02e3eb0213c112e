//! The claims in a token.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The longest name that is accepted for a person, in characters.
const NAME_CHARACTERS: usize = 128;

/// The claims of a valid token.
#[derive(Clone, Debug, Deserialize)]
pub struct Claims {
    /// The issuer's identifier of the token's subject. It never changes, and nobody else ever gets it.
    pub sub: String,
    /// When it expires, in seconds since 1970.
    pub exp: u64,
    /// The issuer.
    pub(crate) iss: String,
    /// When the token was issued.
    #[serde(default)]
    pub(crate) iat: Option<u64>,
    /// The sign-in that the token belongs to.
    #[serde(default)]
    pub(crate) nonce: Option<String>,
    /// The client that the token was issued to, if it has several audiences.
    #[serde(default)]
    pub(crate) azp: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Claims {
    /// The texts in a claim. The claim is an array, as for groups, or a single text with spaces, as for `scope`
    /// (RFC 8693).
    pub fn texts<'a>(&'a self, name: &str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match (self.text(name), self.others.get(name)) {
            (Some(text), _) => Box::new(text.split_ascii_whitespace()),
            (None, Some(Value::Array(values))) => Box::new(values.iter().filter_map(Value::as_str)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// A claim that is a text.
    fn text(&self, name: &str) -> Option<&str> {
        match name {
            // These have members of their own, and are not among the others.
            "sub" => Some(&self.sub),
            "iss" => Some(&self.iss),
            "nonce" => self.nonce.as_deref(),
            "azp" => self.azp.as_deref(),
            _ => self.others.get(name).and_then(Value::as_str),
        }
    }

    /// The name in this claim, or the subject's identifier if the claim has none.
    #[must_use]
    pub fn name(&self, claim: &str) -> String {
        let named = self.text(claim).filter(|name| !name.trim().is_empty());
        named.unwrap_or(&self.sub).chars().take(NAME_CHARACTERS).collect()
    }
}
