//! TLS as the connection string requests it. Files are read again for each connection, so that renewed ones are used.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::conninfo::{Tls, TlsMode};
use crate::error::Reason;

/// The mode for a host. Without one in the connection string, it depends on where the host is: no TLS on this machine,
/// and TLS that verifies the host's name elsewhere.
pub fn mode(tls: &Tls, address: Option<IpAddr>) -> TlsMode {
    match (tls.mode, address) {
        // A Unix socket has no TLS.
        (_, None) => TlsMode::Disable,
        (Some(mode), Some(_)) => mode,
        (None, Some(address)) if address.to_canonical().is_loopback() && tls.roots.is_none() => {
            TlsMode::Disable
        }
        (None, Some(_)) => TlsMode::VerifyFull,
    }
}

/// The TLS client for a mode other than [`TlsMode::Disable`].
pub fn connector(tls: &Tls, mode: TlsMode) -> Result<MakeRustlsConnect, Reason> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        TlsMode::Disable | TlsMode::Require if tls.roots.is_none() => Arc::new(Anybody(provider.clone())),
        _ => {
            let roots = Arc::new(roots(tls.roots.as_deref())?);
            let known = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            let known = known.map_err(|error| Reason::Tls(error.to_string()))?;
            // If authorities are given, libpq's `require` means `verify-ca`.
            if mode == TlsMode::VerifyFull { known } else { Arc::new(AnyName(known)) }
        }
    };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| Reason::Tls(error.to_string()))?;
    let config = config.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let certificates = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            let config = config.with_client_auth_cert(certificates, key);
            config.map_err(|error| Reason::Tls(format!("sslcert and sslkey: {error}")))?
        }
        _ => config.with_no_client_auth(),
    };
    if tls.direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, Reason> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| unreadable(file, &error))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        let whose = file.map_or("the system".into(), |file| file.display().to_string());
        return Err(Reason::Tls(format!(
            "{whose} has no certificates of authorities: name a file by sslrootcert"
        )));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Reason> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Reason {
    Reason::Tls(format!("{}: {error}", file.display()))
}

/// Accepts every certificate: `sslmode=require`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts certificates from known authorities, whatever their name: `sslmode=verify-ca`.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is checked last, so everything else is valid.
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conninfo::Conninfo;

    #[test]
    fn beyond_this_machine_there_is_tls_that_knows_the_name_unless_it_is_told_otherwise() {
        let here = Some(IpAddr::from([127, 0, 0, 1]));
        let mapped = "::ffff:127.0.0.1".parse().ok();
        let there = Some(IpAddr::from([10, 0, 0, 1]));
        for (parameters, address, expected) in [
            ("", None, TlsMode::Disable),
            ("?sslmode=verify-full", None, TlsMode::Disable),
            ("", here, TlsMode::Disable),
            ("", mapped, TlsMode::Disable),
            ("?sslrootcert=/ca.pem", here, TlsMode::VerifyFull),
            ("?sslrootcert=system", here, TlsMode::VerifyFull),
            ("?sslmode=require", here, TlsMode::Require),
            ("", there, TlsMode::VerifyFull),
            ("?sslmode=verify-ca", there, TlsMode::VerifyCa),
            ("?sslmode=disable", there, TlsMode::Disable),
        ] {
            let conninfo: Conninfo = format!("postgres://db/{parameters}").parse().expect("a URL");
            assert_eq!(mode(&conninfo.tls, address), expected, "{parameters} {address:?}");
        }
    }
}
