//! Certificates read from files, which can be replaced while in use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::CertificateFiles;

use super::Error;
use super::names::Names;

/// Certificates read from files. A handshake uses those at its start, without a lock.
pub struct Store {
    provider: Arc<CryptoProvider>,
    loaded: ArcSwap<Names>,
    /// The files that were loaded, or last tried. Reloading holds the lock, so that the last result is the one in use.
    read: Mutex<Read>,
}

/// The files, and what they were when they were read.
struct Read {
    files: Vec<CertificateFiles>,
    changed: Changes,
}

type Changes = Vec<Option<Version>>;

/// What differs between two versions of a file: its device, its number, its length and the time of its last change. The
/// length matters because a file that is read while it is written may be finished within the same tick of the file
/// system's clock; the number because other files behind a link may have the same times (a Nix store).
type Version = (u64, u64, u64, (i64, i64));

impl Store {
    pub(super) fn load(files: &[CertificateFiles], provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        // Before reading, so that a change meanwhile is noticed at the next check.
        let read = Mutex::new(Read { files: files.to_vec(), changed: changes(files) });
        let loaded = ArcSwap::from_pointee(read_all(files, &provider)?);
        Ok(Self { provider, loaded, read })
    }

    /// Reads all files again. New handshakes use them; open connections stay as they are.
    ///
    /// # Errors
    /// When one of them cannot be used. All previous ones then stay in use.
    pub fn reload(&self) -> Result<(), Error> {
        let mut read = self.read();
        let changed = changes(&read.files);
        self.replace(&read.files)?;
        read.changed = changed;
        Ok(())
    }

    /// Reads exactly these files from now on.
    ///
    /// # Errors
    /// When one of them cannot be used. The previous files then stay.
    pub fn replace_files(&self, files: &[CertificateFiles]) -> Result<(), Error> {
        let mut read = self.read();
        let changed = changes(files);
        self.replace(files)?;
        *read = Read { files: files.to_vec(), changed };
        Ok(())
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all files again if one has changed since they were last read. Returns whether it did.
    ///
    /// # Errors
    /// Those of [`reload`](Self::reload). Unusable files are tried again when they change, and those that could not be
    /// read each time: the reason may go without a change.
    pub fn reload_if_changed(&self) -> Result<bool, Error> {
        let mut read = self.read();
        let now = changes(&read.files);
        if read.changed == now {
            return Ok(false);
        }
        let replaced = self.replace(&read.files);
        if !matches!(replaced, Err(Error::Read { source: pem::Error::Io(_), .. })) {
            read.changed = now;
        }
        replaced.map(|()| true)
    }

    fn replace(&self, files: &[CertificateFiles]) -> Result<(), Error> {
        self.loaded.store(Arc::new(read_all(files, &self.provider)?));
        Ok(())
    }

    /// Reads all files again whenever one has changed, and logs that. Checks at this interval, and never returns.
    pub async fn poll(&self, every: Duration) {
        // What was said of files that are tried each time.
        let mut said = None;
        loop {
            tokio::time::sleep(every).await;
            let error = match self.reload_if_changed() {
                Ok(true) => {
                    tracing::info!("certificates loaded anew");
                    None
                }
                Ok(false) => None,
                Err(error) => Some(error.to_string()),
            };
            if let Some(error) = error.as_ref().filter(|error| said.as_ref() != Some(*error)) {
                tracing::error!(%error, "certificates stay as they are");
            }
            said = error;
        }
    }

    /// For each name, how many seconds its certificate is still valid; of several, the one that ends first. Negative if
    /// it has ended.
    pub(super) fn left(&self) -> Vec<(String, f64)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
        let loaded = self.loaded.load();
        loaded.ends().iter().map(|(name, end)| (name.clone(), (*end as f64 - now).round())).collect()
    }
}

impl ResolvesServerCert for Store {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls gives the name in lower case.
        Some(Arc::clone(self.loaded.load().find(hello.server_name(), hello.signature_schemes())))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("files", &self.read().files).finish_non_exhaustive()
    }
}

fn read_all(files: &[CertificateFiles], provider: &CryptoProvider) -> Result<Names, Error> {
    let certificates = files.iter().map(|files| read(files, provider)).collect::<Result<Vec<_>, _>>()?;
    Names::new(certificates).ok_or(Error::None)
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

fn changes(files: &[CertificateFiles]) -> Changes {
    let files = files.iter().flat_map(|files| [&files.chain, &files.key]);
    let version =
        |file: fs::Metadata| (file.dev(), file.ino(), file.len(), (file.ctime(), file.ctime_nsec()));
    files.map(|file| fs::metadata(file).ok().map(version)).collect()
}

#[cfg(test)]
mod tests {
    use rustls::SignatureScheme;
    use tempfile::TempDir;

    use super::*;

    /// Writes a certificate for a name. Returns the one that is then shown.
    fn make(directory: &TempDir, name: &str) -> CertificateDer<'static> {
        let made = testkit::certificate(&[name]);
        let files = files(directory, name);
        made.write(files.chain, files.key);
        made.cert.der().clone()
    }

    fn files(directory: &TempDir, name: &str) -> CertificateFiles {
        let file = |kind: &str| directory.path().join(format!("{name}.{kind}"));
        CertificateFiles { chain: file("chain"), key: file("key") }
    }

    fn shown(store: &Store, name: &str) -> CertificateDer<'static> {
        let loaded = store.loaded.load();
        let found = loaded.find(Some(name), &[SignatureScheme::ECDSA_NISTP256_SHA256]);
        found.end_entity_cert().expect("a certificate").clone().into_owned()
    }

    #[test]
    fn all_are_replaced_or_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = ["a.example", "b.example"];
        let before = names.map(|name| make(&directory, name));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let store = Store::load(&names.map(|name| files(&directory, name)), provider).expect("certificates");
        let all = || names.map(|name| shown(&store, name));
        assert_eq!(all(), before);
        assert!(!store.reload_if_changed().expect("as before"));

        let mut after = [make(&directory, "a.example"), before[1].clone()];
        let bad = files(&directory, "b.example").key;
        for broken in ["no key", &rcgen::KeyPair::generate().expect("a key").serialize_pem()] {
            fs::write(&bad, broken).expect("a file");
            for said in [store.reload_if_changed().map(drop), store.reload()] {
                let said = said.expect_err("no pair").to_string();
                assert!(said.contains(&*bad.to_string_lossy()), "{said}");
                assert_eq!(all(), before);
            }
            // It is not tried again until something changes.
            assert!(!store.reload_if_changed().expect("as before"));
        }
        // New files are not accepted either if one of them is invalid.
        let others = [files(&directory, "a.example"), files(&directory, "c.example")];
        assert!(store.replace_files(&others).is_err());
        assert_eq!(all(), before);
        after[1] = make(&directory, "b.example");
        assert!(store.reload_if_changed().expect("good ones"));
        assert_eq!(all(), after);
        let new = make(&directory, "c.example");
        store.replace_files(&others).expect("good ones");
        assert_eq!(shown(&store, "c.example"), new);
        assert!(!store.reload_if_changed().expect("as before"));
    }

    #[test]
    fn another_pair_behind_a_link_is_noticed_whatever_its_time_and_length() {
        let [old, new, links] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let name = "a.example";
        let [before, after] = [&old, &new].map(|directory| make(directory, name));
        let paths = |directory: &TempDir| {
            let CertificateFiles { chain, key } = files(directory, name);
            [chain, key]
        };
        for file in [&old, &new].into_iter().flat_map(paths) {
            let mut text = fs::read(&file).expect("a file");
            text.resize(4_000, b'\n');
            fs::write(&file, text).expect("written");
            let file = fs::File::options().write(true).open(&file).expect("a file");
            file.set_modified(UNIX_EPOCH).expect("a time");
        }
        let link = |directory: &TempDir| {
            for (file, link) in paths(directory).iter().zip(&paths(&links)) {
                let _ = fs::remove_file(link);
                std::os::unix::fs::symlink(file, link).expect("a link");
            }
        };
        link(&old);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let store = Store::load(&[files(&links, name)], provider).expect("certificates");
        assert_eq!(shown(&store, name), before);
        link(&new);
        assert!(store.reload_if_changed().expect("good ones"));
        assert_eq!(shown(&store, name), after);
    }

    #[test]
    fn what_could_not_be_read_is_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = "a.example";
        make(&directory, name);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let store = Store::load(&[files(&directory, name)], provider).expect("certificates");
        let key = files(&directory, name).key;
        fs::write(&key, "no key").expect("a file");
        assert!(store.reload().is_err());
        assert!(store.reload_if_changed().is_err(), "an attempt that failed before changes nothing");
        assert!(!store.reload_if_changed().expect("as before"), "this would fail each time");
        fs::remove_file(&key).expect("it is there");
        fs::create_dir(&key).expect("a directory");
        for _ in 0..2 {
            assert!(store.reload_if_changed().is_err(), "this may succeed the next time");
        }
        fs::remove_dir(&key).expect("it is there");
        let after = make(&directory, name);
        assert!(store.reload_if_changed().expect("good ones"));
        assert_eq!(shown(&store, name), after);
    }
}
