//! Certificates by the name a client asks for, replaced while they are in use.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::CertificateFiles;

use super::Error;

/// Certificates read from files. A handshake takes what is there at its start, without a lock.
pub struct Store {
    files: Vec<CertificateFiles>,
    provider: Arc<CryptoProvider>,
    loaded: ArcSwap<Loaded>,
    /// When the files were changed that are loaded, or last tried, and how long they were: one that is read while it is
    /// written may be finished within the same tick of the file system's clock.
    changed: Mutex<Vec<Option<(SystemTime, u64)>>>,
}

struct Loaded {
    default: Arc<CertifiedKey>,
    /// By lower-case name. Of `*.example.org` it is `example.org` in `wildcards`.
    names: HashMap<Box<str>, Arc<CertifiedKey>>,
    wildcards: HashMap<Box<str>, Arc<CertifiedKey>>,
}

impl Store {
    pub(super) fn load(files: &[CertificateFiles], provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        // Before reading, so that a change meanwhile is seen at the next look.
        let changed = Mutex::new(changes(files));
        let loaded = ArcSwap::from_pointee(Loaded::read(files, &provider)?);
        Ok(Self { files: files.to_vec(), provider, loaded, changed })
    }

    /// Reads all files anew. Handshakes from now on use them; connections that are open stay as they are.
    ///
    /// # Errors
    /// When one of them cannot be used; then those from before stay in use.
    pub fn reload(&self) -> Result<(), Error> {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = changes(&self.files);
        self.loaded.store(Arc::new(Loaded::read(&self.files, &self.provider)?));
        Ok(())
    }

    /// Reads all files anew if one of them has changed since they were last read, and says whether.
    ///
    /// # Errors
    /// As of [`reload`](Self::reload). What could not be used is not tried again until it changes again.
    pub fn reload_if_changed(&self) -> Result<bool, Error> {
        if *self.changed.lock().unwrap_or_else(PoisonError::into_inner) == changes(&self.files) {
            return Ok(false);
        }
        self.reload().map(|()| true)
    }
}

impl ResolvesServerCert for Store {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let loaded = self.loaded.load();
        // rustls has made the name lower-case.
        let found = hello.server_name().and_then(|name| loaded.find(name));
        Some(Arc::clone(found.unwrap_or(&loaded.default)))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Loaded {
    fn read(files: &[CertificateFiles], provider: &CryptoProvider) -> Result<Self, Error> {
        let (mut default, mut names, mut wildcards) = (None, HashMap::new(), HashMap::new());
        for files in files {
            let certificate = Arc::new(read(files, provider)?);
            for name in dns_names(&certificate) {
                let name = name.to_ascii_lowercase();
                // The first certificate for a name is the one that counts.
                match name.strip_prefix("*.") {
                    Some(parent) => wildcards.entry(parent.into()).or_insert_with(|| certificate.clone()),
                    None => names.entry(name.into()).or_insert_with(|| certificate.clone()),
                };
            }
            default.get_or_insert(certificate);
        }
        Ok(Self { default: default.ok_or(Error::None)?, names, wildcards })
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        // RFC 6125, section 6.4.3: a wildcard stands for exactly one label.
        self.names
            .get(name)
            .or_else(|| name.split_once('.').and_then(|(_, parent)| self.wildcards.get(parent)))
    }
}

fn read(files: &CertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let unreadable = |file: &Path| {
        let file = file.to_owned();
        move |source| Error::Read { file, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.chain))?;
    if chain.is_empty() {
        return Err(Error::Empty(files.chain.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| Error::Key {
        key: files.key.clone(),
        chain: files.chain.clone(),
        source,
    })
}

/// The names in a certificate; none of one that cannot be read, which clients judge, not we.
fn dns_names(certificate: &CertifiedKey) -> Vec<String> {
    let end_entity = certificate.end_entity_cert().ok();
    let parsed = end_entity.and_then(|der| webpki::EndEntityCert::try_from(der).ok());
    parsed.map_or_else(Vec::new, |parsed| parsed.valid_dns_names().map(str::to_owned).collect())
}

fn changes(files: &[CertificateFiles]) -> Vec<Option<(SystemTime, u64)>> {
    let files = files.iter().flat_map(|files| [&files.chain, &files.key]);
    files.map(|file| fs::metadata(file).and_then(|file| Ok((file.modified()?, file.len()))).ok()).collect()
}
