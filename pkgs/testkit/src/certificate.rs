//! Certificates that sign themselves, for a server and for who trusts just this one.

use std::fs;
use std::path::Path;

/// A certificate and its key.
pub struct Certificate {
    /// Its own authority too.
    pub cert: rcgen::Certificate,
    /// ECDSA by P-256.
    pub key: rcgen::KeyPair,
}

/// A certificate for these names and addresses.
///
/// # Panics
/// Where one of them is none.
pub fn certificate(names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("names");
    Certificate { cert: made.cert, key: made.signing_key }
}

impl Certificate {
    /// Writes both in PEM, over what is there.
    ///
    /// # Panics
    /// Where a file cannot be written.
    #[track_caller]
    pub fn write(&self, cert: impl AsRef<Path>, key: impl AsRef<Path>) {
        fs::write(cert, self.cert.pem()).expect("a file for the certificate");
        fs::write(key, self.key.serialize_pem()).expect("a file for the key");
    }

    /// Writes `cert.pem` and `key.pem` in a directory, and says where they are, as flags take it.
    ///
    /// # Panics
    /// Where they cannot be written, or the path is not UTF-8.
    #[track_caller]
    pub fn write_in(&self, directory: impl AsRef<Path>) -> [String; 2] {
        let files = ["cert.pem", "key.pem"].map(|name| directory.as_ref().join(name));
        self.write(&files[0], &files[1]);
        files.map(|file| file.into_os_string().into_string().expect("UTF-8"))
    }
}
