//! An issuer's keys (RFC 7517) that sign with an accepted algorithm.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

/// How many keys are considered. An issuer has two or three while one replaces another.
const KEYS: usize = 64;

/// The keys that an issuer signs with.
pub(crate) struct KeySet(Vec<Key>);

/// One of an issuer's keys.
pub(crate) struct Key {
    id: Option<String>,
    /// The algorithm that the key signs with. Each key has only one, whatever a token says.
    pub(crate) algorithm: Algorithm,
    pub(crate) decoding: DecodingKey,
}

/// The published keys. They are read one by one, since keys of unknown kinds are skipped.
#[derive(Deserialize)]
pub(crate) struct Published {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// The published keys that sign with an accepted algorithm.
    pub(crate) fn new(published: Published) -> Self {
        let all = published.keys.into_iter().take(KEYS);
        Self(
            all.filter_map(|key| serde_json::from_value(key).ok()).filter_map(|key| Key::new(&key)).collect(),
        )
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The key with this id. If a token names no key, the only key for the algorithm.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.0.iter().filter(|key| key.algorithm == algorithm);
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

impl Key {
    fn new(key: &Jwk) -> Option<Self> {
        let (algorithm, named) = match &key.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
            }
            // Other curves, and shared secrets, with which every verifier could also make tokens.
            _ => return None,
        };
        let signs = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let ours = key.common.key_algorithm.is_none_or(|algorithm| algorithm == named);
        let decoding = DecodingKey::from_jwk(key).ok()?;
        (signs && ours).then(|| Self { id: key.common.key_id.clone(), algorithm, decoding })
    }
}
