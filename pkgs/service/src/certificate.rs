//! Reads certificates: the names that one is for, and when it ends. It does not check whether to trust one.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

/// PEM's label of a certificate (RFC 7468, section 5).
const LABEL: &str = "CERTIFICATE";

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its host names and addresses, or its subject if it has none.
    pub names: Vec<String>,
    /// The last second in which it is valid, in seconds since 1970 (RFC 5280, section 4.1.2.5).
    pub not_after: i64,
}

/// Why a certificate cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text contains none.
    #[error("it has no certificate")]
    None,
    /// A part of the text is not PEM.
    #[error("it is not PEM")]
    Pem,
    /// It is not DER, or not X.509.
    #[error("it is no X.509 certificate")]
    Certificate,
}

impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// When it is not a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| Error::Certificate)?;
        let not_after = certificate.validity().not_after.timestamp();
        Ok(Self { names: names(&certificate), not_after })
    }

    /// Reads the certificates in a text, and skips everything else. By custom the server's own comes first, followed by
    /// those that signed it.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn from_pem(text: &[u8]) -> Result<Vec<Self>, Error> {
        let parts = Pem::iter_from_buffer(text).collect::<Result<Vec<_>, _>>().map_err(|_| Error::Pem)?;
        let certificates = parts.iter().filter(|part| part.label == LABEL);
        let all = certificates.map(|part| Self::from_der(&part.contents)).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() { Err(Error::None) } else { Ok(all) }
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let general = alternative.iter().flat_map(|extension| &extension.value.general_names);
    let mut names: Vec<String> = general.filter_map(name).collect();
    if names.is_empty() {
        names.push(certificate.subject().to_string());
    }
    names
}

/// A host's name or address.
fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()?;
            Some(address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that ends with this day.
    fn made(names: &[&str], year: i32) -> rcgen::Certificate {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).expect("names");
        params.not_after = rcgen::date_time_ymd(year, 1, 2);
        params.distinguished_name.push(rcgen::DnType::CommonName, "somebody");
        params.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate")
    }

    #[test]
    fn names_and_the_end_are_read() {
        // Before and after 2050 a time has different encodings (RFC 5280, section 4.1.2.5).
        for (names, year, not_after) in [
            (&["a.example", "*.b.example", "192.0.2.1", "2001:db8::1"][..], 2030, 1_893_542_400),
            (&["a.example"], 2060, 2_840_227_200),
        ] {
            let der = made(names, year);
            let read = Certificate::from_der(der.der()).expect("a certificate");
            assert_eq!(read.names, names);
            assert_eq!(read.not_after, not_after, "{year}");
        }
        let nameless = Certificate::from_der(made(&[], 2030).der()).expect("a certificate");
        assert!(nameless.names[0].contains("somebody"), "{nameless:?}");
    }

    #[test]
    fn a_text_may_have_more_than_certificates() {
        let chain = [made(&["a.example"], 2030).pem(), made(&["b.example"], 2031).pem()];
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let text = format!("of a\n{}of b\n{}{key}", chain[0], chain[1]);
        let read = Certificate::from_pem(text.as_bytes()).expect("certificates");
        assert_eq!(
            read.iter().map(|one| one.names[0].as_str()).collect::<Vec<_>>(),
            ["a.example", "b.example"]
        );
        for (text, error) in [
            ("", Error::None),
            (&key, Error::None),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", Error::Certificate),
            ("-----BEGIN CERTIFICATE-----\nA", Error::Pem),
        ] {
            assert_eq!(Certificate::from_pem(text.as_bytes()), Err(error), "{text}");
        }
    }
}
