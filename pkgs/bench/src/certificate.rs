//! A certificate, made by each run for itself.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Error;

/// The file of the certificate in its directory.
pub const CHAIN: &str = "chain.pem";
/// The file of its key: ECDSA by P-256.
pub const KEY: &str = "key.pem";

/// Makes one in `directory` for `localhost` and its address: by the latter a server chooses where a client names
/// nobody.
///
/// # Errors
/// When it cannot be written.
pub fn make(directory: &Path) -> Result<(), Error> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .map_err(io::Error::other)?;
    for (name, text) in [(CHAIN, made.cert.pem()), (KEY, made.signing_key.serialize_pem())] {
        let file = directory.join(name);
        fs::write(&file, text).map_err(Error::file(&file))?;
    }
    Ok(())
}
