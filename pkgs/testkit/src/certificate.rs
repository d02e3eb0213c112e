//! Self-signed certificates, for a server and for clients that trust only this one.

use std::fs;
use std::path::Path;

/// A certificate and its key.
pub struct Certificate {
    /// It is also its own authority.
    pub cert: rcgen::Certificate,
    /// ECDSA with P-256.
    pub key: rcgen::KeyPair,
}

/// A certificate for these names and addresses.
///
/// # Panics
/// When one of them is invalid.
pub fn certificate(names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("names");
    Certificate { cert: made.cert, key: made.signing_key }
}

impl Certificate {
    /// Writes both in PEM, over existing files.
    ///
    /// # Panics
    /// When a file can't be written.
    #[track_caller]
    pub fn write(&self, cert: impl AsRef<Path>, key: impl AsRef<Path>) {
        fs::write(cert, self.cert.pem()).expect("a file for the certificate");
        fs::write(key, self.key.serialize_pem()).expect("a file for the key");
    }

    /// Writes `cert.pem` and `key.pem` in a directory, and returns their paths for use in flags.
    ///
    /// # Panics
    /// When they can't be written, or the path isn't UTF-8.
    #[track_caller]
    pub fn write_in(&self, directory: impl AsRef<Path>) -> [String; 2] {
        let files = ["cert.pem", "key.pem"].map(|name| directory.as_ref().join(name));
        self.write(&files[0], &files[1]);
        files.map(|file| file.into_os_string().into_string().expect("UTF-8"))
    }
}
