//! Chooses the certificate for a client: by the name that it requests, and by the signatures that it accepts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;
use service::certificate::Certificate;

/// Every signature scheme that our keys may use (`rustls::crypto::aws_lc_rs`).
const SCHEMES: [SignatureScheme; 10] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

/// Certificates by name. Everything that can be is computed in advance, so a look-up allocates nothing.
pub(super) struct Names {
    /// For clients that request no name, or an unknown one.
    default: Candidates,
    /// By lower-case name. `*.example.org` is `example.org` in `wildcards`.
    exact: HashMap<Box<str>, Candidates>,
    wildcards: HashMap<Box<str>, Candidates>,
    /// When the first certificate of each name ends, in seconds since 1970.
    ends: BTreeMap<String, i64>,
}

/// Certificates for one name, in their given order; never empty.
#[derive(Clone, Default)]
struct Candidates(Vec<Candidate>);

#[derive(Clone)]
struct Candidate {
    certified: Arc<CertifiedKey>,
    /// The schemes of its key's signatures.
    schemes: Arc<[SignatureScheme]>,
}

impl Candidate {
    fn new(certified: CertifiedKey) -> Self {
        let signs = |scheme: &SignatureScheme| certified.key.choose_scheme(&[*scheme]).is_some();
        let schemes = SCHEMES.into_iter().filter(signs).collect();
        Self { certified: Arc::new(certified), schemes }
    }
}

impl Candidates {
    /// The first certificate whose signatures the client accepts. If it accepts none, the first of all; the handshake
    /// then fails.
    fn for_client(&self, offered: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let fits = |one: &&Candidate| one.schemes.iter().any(|scheme| offered.contains(scheme));
        match &self.0[..] {
            [only] => &only.certified,
            several => &several.iter().find(fits).unwrap_or(&several[0]).certified,
        }
    }
}

impl Names {
    /// From certificates with their keys, of which the first is the default. None if there are none.
    pub(super) fn new(certificates: Vec<CertifiedKey>) -> Option<Self> {
        let mut default: Option<(Vec<String>, Candidates)> = None;
        let (mut exact, mut wildcards) = (HashMap::<Box<str>, Candidates>::new(), HashMap::new());
        let mut ends = BTreeMap::new();
        for certified in certificates {
            let names = dns_names(&certified);
            note_end(&certified, &mut ends);
            let candidate = Candidate::new(certified);
            for name in &names {
                let (by_name, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut wildcards, parent),
                    None => (&mut exact, name.as_str()),
                };
                by_name.entry(name.into()).or_default().0.push(candidate.clone());
            }
            // Certificates that differ from the default only in their key belong to it.
            let (of, default) = default.get_or_insert_with(|| (names.clone(), Candidates::default()));
            if default.0.is_empty() || *of == names {
                default.0.push(candidate);
            }
        }
        default.map(|(_, default)| Self { default, exact, wildcards, ends })
    }

    /// The certificate for a client that requests this lower-case name, and accepts these signature schemes.
    pub(super) fn find(&self, name: Option<&str>, offered: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        name.and_then(|name| self.named(name)).unwrap_or(&self.default).for_client(offered)
    }

    fn named(&self, name: &str) -> Option<&Candidates> {
        // RFC 6125, section 6.4.3: a wildcard stands for exactly one label.
        self.exact
            .get(name)
            .or_else(|| name.split_once('.').and_then(|(_, parent)| self.wildcards.get(parent)))
    }

    /// When the first certificate of each name ends, in seconds since 1970.
    pub(super) fn ends(&self) -> &BTreeMap<String, i64> {
        &self.ends
    }
}

/// The names in a certificate, sorted and in lower case. Empty if it cannot be read, which is for clients to judge.
fn dns_names(certified: &CertifiedKey) -> Vec<String> {
    let end_entity = certified.end_entity_cert().ok();
    let parsed = end_entity.and_then(|der| webpki::EndEntityCert::try_from(der).ok());
    let names = parsed.iter().flat_map(|parsed| parsed.valid_dns_names());
    let mut names: Vec<String> = names.map(str::to_ascii_lowercase).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Records when a certificate ends, if that can be read.
fn note_end(certified: &CertifiedKey, ends: &mut BTreeMap<String, i64>) {
    let read = certified.end_entity_cert().ok().and_then(|der| Certificate::from_der(der).ok());
    for (name, not_after) in read.into_iter().flat_map(|one| {
        let not_after = one.not_after;
        one.names.into_iter().map(move |name| (name, not_after))
    }) {
        let end = ends.entry(name.to_ascii_lowercase()).or_insert(not_after);
        *end = not_after.min(*end);
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use super::*;

    const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
    const P384: SignatureScheme = SignatureScheme::ECDSA_NISTP384_SHA384;
    const RSA: SignatureScheme = SignatureScheme::RSA_PSS_SHA256;

    fn made(names: &[&str], algorithm: &'static rcgen::SignatureAlgorithm, year: i32) -> CertifiedKey {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).expect("names");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let chain = vec![CertificateDer::from(params.self_signed(&key).expect("a certificate"))];
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        CertifiedKey::from_der(chain, key, &provider).expect("a pair")
    }

    /// The index of the certificate that is shown.
    fn shown(
        names: &Names,
        all: &[CertificateDer<'_>],
        name: Option<&str>,
        offered: &[SignatureScheme],
    ) -> usize {
        let found = names.find(name, offered).end_entity_cert().expect("a certificate");
        all.iter().position(|one| one == found).expect("one of them")
    }

    #[test]
    fn a_client_is_shown_what_it_asks_for_and_can_verify() {
        let (p256, p384, rsa) =
            (&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256);
        let certificates = vec![
            made(&["Default.example"], p256, 2040),
            made(&["a.example", "*.b.example"], p256, 2040),
            made(&["a.example"], rsa, 2040),
            made(&["x.b.example"], p256, 2040),
            made(&["*.b.example"], p384, 2040),
            made(&["default.example"], rsa, 2040),
            // Never shown: the same as the first, and after it.
            made(&["default.example"], p256, 2040),
        ];
        let all: Vec<_> =
            certificates.iter().map(|one| one.end_entity_cert().expect("one").clone().into_owned()).collect();
        let names = Names::new(certificates).expect("some");
        for (name, offered, expected) in [
            (None, &[ECDSA, RSA][..], 0),
            (None, &[RSA], 5),
            (Some("other.example"), &[RSA, ECDSA], 0),
            (Some("other.example"), &[RSA], 5),
            (Some("default.example"), &[ECDSA], 0),
            (Some("default.example"), &[RSA], 5),
            (Some("a.example"), &[RSA, ECDSA], 1),
            (Some("a.example"), &[RSA], 2),
            // None fits: the handshake fails.
            (Some("a.example"), &[SignatureScheme::ED25519], 1),
            (Some("a.example"), &[], 1),
            (Some("x.b.example"), &[ECDSA, P384], 3),
            (Some("y.b.example"), &[ECDSA, P384], 1),
            (Some("y.b.example"), &[P384], 4),
            // The exact name is preferred, even if its signatures do not fit.
            (Some("x.b.example"), &[P384], 3),
            (Some("b.example"), &[ECDSA], 0),
            (Some("z.y.b.example"), &[ECDSA], 0),
            (Some(""), &[ECDSA], 0),
            (Some("."), &[ECDSA], 0),
        ] {
            assert_eq!(shown(&names, &all, name, offered), expected, "{name:?} {offered:?}");
        }
    }

    #[test]
    fn of_several_for_a_name_the_end_of_the_first_counts() {
        let p256 = &rcgen::PKCS_ECDSA_P256_SHA256;
        let certificates = vec![
            made(&["A.example", "b.example"], p256, 2041),
            made(&["a.example"], p256, 2040),
            made(&["192.0.2.1"], p256, 2042),
        ];
        let names = Names::new(certificates).expect("some");
        let ends: Vec<(&str, i64)> = names.ends().iter().map(|(name, end)| (name.as_str(), *end)).collect();
        let expected =
            [("192.0.2.1", 2_272_147_200), ("a.example", 2_208_988_800), ("b.example", 2_240_611_200)];
        assert_eq!(ends, expected);
        assert!(Names::new(Vec::new()).is_none());
    }
}
