//! A certificate, which each run makes for itself.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Error;

/// The certificate's file name.
pub const CHAIN: &str = "chain.pem";
/// The key's file name: ECDSA with P-256.
pub const KEY: &str = "key.pem";

/// Makes a certificate in `directory` for `localhost` and its address, which a server chooses if a client names no
/// host.
///
/// # Errors
/// When it can't be written.
pub fn make(directory: &Path) -> Result<(), Error> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .map_err(io::Error::other)?;
    for (name, text) in [(CHAIN, made.cert.pem()), (KEY, made.signing_key.serialize_pem())] {
        let file = directory.join(name);
        fs::write(&file, text).map_err(Error::file(&file))?;
    }
    Ok(())
}
