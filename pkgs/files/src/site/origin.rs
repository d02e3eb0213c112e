//! Files in object storage instead of a directory, through the cache of the `origin` crate.
//!
//! A complete cached object is a file like any other. Nothing here waits for the network: the origin's own threads do,
//! and call back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join3;
use origin::{Error as OriginError, Known, Object, Origin};
use rustix::io::Errno;
use tokio::time::sleep;

use super::lookup::{Candidates, Choice, Lookup, Named};
use super::origin_file::{OriginFile, Promise};
use super::root::{Error, FileIdentity, Found, INDEX, OpenedFile};
use crate::http::encoding::Coding;
use crate::http::media_type::{is_text, media_type};
use crate::threads::interest::Interest;

/// How often a look-up that waits checks whether somebody still waits for it.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A bucket, or everything below a prefix in it, as a root.
#[derive(Clone, Debug)]
pub struct OriginRoot {
    origin: Origin,
    precompressed: bool,
}

impl OriginRoot {
    /// Uses this origin. With `precompressed`, objects `x.br`, `x.zst` and `x.gz` that aren't older are encodings of a
    /// text `x`.
    pub fn new(origin: Origin, precompressed: bool) -> Self {
        Self { origin, precompressed }
    }

    /// How often files were evicted from the cache.
    pub fn evictions(&self) -> u64 {
        self.origin.evictions()
    }

    /// What a decoded path names, if that is known.
    ///
    /// # Errors
    /// [`Error::Cold`] if the origin or the disk has to be asked.
    pub fn find_known(&self, path: &[u8]) -> Result<Found, Error> {
        let key = key_of(path)?;
        let known = |key: &str| match self.origin.known(key) {
            Known::Object(object) => Ok(object),
            Known::Failed(error) => Err(failed(&error)),
            Known::Unknown => Err(Error::Cold),
        };
        match known(&key) {
            Ok(object) => {
                let mut codings = [None, None, None];
                if self.has_codings(&key) {
                    for (place, coding) in codings.iter_mut().zip(Coding::ALL) {
                        match known(&beside(&key, coding)) {
                            Ok(coded) => *place = Some(coded),
                            Err(Error::Cold) => return Err(Error::Cold),
                            Err(_) => {}
                        }
                    }
                }
                self.found(object, codings)
            }
            Err(Error::Missing) => match index_of(path) {
                Some(index) => known(&index).map(|_| Found::Directory),
                None => Err(Error::Missing),
            },
            Err(error) => Err(error),
        }
    }

    /// Finds out what a path names, or the first of several that exists. A directory without its final slash counts if
    /// it is what was asked for, as [`Candidates`] says. If nobody is interested any more, it fails soon. If too many
    /// wait, `done` is called at once, with [`Error::Exhausted`].
    pub fn find(
        &self,
        lookup: Lookup,
        interest: Interest,
        done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static,
    ) {
        let (paths, asked) = match lookup {
            Lookup::One(path, _) => (vec![path.clone()], path),
            Lookup::First { paths, asked } => (paths, asked),
        };
        let Some(place) = self.origin.place() else { return done(asked, Err(Error::Exhausted)) };
        let this = self.clone();
        let otherwise = (asked.clone(), Err(Error::Failed(Errno::IO)));
        let promise = Promise::new(move |(path, found)| done(path, found), otherwise);
        self.origin.spawn(async move {
            let left = async {
                while interest.is_there() {
                    sleep(CHECK_EVERY).await;
                }
            };
            // What it has asked of the origin goes on, and is known when somebody else asks.
            let found = tokio::select! {
                biased;
                found = this.first(&paths, asked) => Some(found),
                () = left => None,
            };
            // Whoever is told may look up something else at once.
            drop(place);
            if let Some(found) = found {
                promise.keep(found);
            }
        });
    }

    /// Which of several paths counts, and what it names.
    async fn first(&self, paths: &[Vec<u8>], asked: Vec<u8>) -> (Vec<u8>, Result<Found, Error>) {
        let mut candidates = Candidates::new(paths, &asked);
        let mut last = Err(Error::Missing);
        for (at, path) in paths.iter().enumerate() {
            if candidates.is_over(at) {
                break;
            }
            let found = self.look(path).await;
            let named = match &found {
                Err(Error::Missing) => Named::Nothing,
                Err(_) => return (path.clone(), found),
                Ok(Found::File(_) | Found::Listing(_)) => Named::Answer,
                Ok(Found::Directory) => Named::Directory,
            };
            match candidates.choose(at, named) {
                Choice::Answer => return (path.clone(), found),
                // Its path is the requested one.
                Choice::Keep => last = found,
                Choice::Kept => break,
                Choice::Next => {}
            }
        }
        (asked, last)
    }

    async fn look(&self, path: &[u8]) -> Result<Found, Error> {
        let key = key_of(path)?;
        match self.origin.find(&key, true).await {
            Ok(object) => {
                let mut codings = [None, None, None];
                if self.has_codings(&key) {
                    // If an encoding isn't available, the file is sent as it is.
                    let find = async |coding| self.origin.find(&beside(&key, coding), false).await.ok();
                    let [one, two, three] = Coding::ALL.map(find);
                    codings = join3(one, two, three).await.into();
                }
                self.found(object, codings)
            }
            Err(OriginError::Missing) => {
                let Some(index) = index_of(path) else { return Err(Error::Missing) };
                let found = self.origin.find(&index, false).await;
                found.map(|_| Found::Directory).map_err(|error| failed(&error))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn has_codings(&self, key: &str) -> bool {
        self.precompressed && is_text(&media_type(key.as_bytes(), ""))
    }

    fn found(&self, plain: Arc<Object>, codings: [Option<Arc<Object>>; 3]) -> Result<Found, Error> {
        let modified = plain.metadata.modified;
        let mut files = Box::new([Some(self.open(plain)?), None, None, None]);
        for (place, coded) in files[1..].iter_mut().zip(codings) {
            // An older encoding belongs to an earlier version of the file.
            if let Some(coded) = coded.filter(|coded| coded.metadata.modified >= modified) {
                *place = Some(self.open(coded)?);
            }
        }
        Ok(Found::File(files))
    }

    fn open(&self, object: Arc<Object>) -> Result<OpenedFile, Error> {
        // Asked before the state is read, which changes until it is complete.
        let is_whole = object.is_whole();
        let fd = rustix::io::fcntl_dupfd_cloexec(object.file(), 0)?;
        let (identity, _) = FileIdentity::of(&fd)?;
        let origin = Some(OriginFile::new(self.origin.clone(), object, is_whole));
        Ok(OpenedFile { fd, identity, origin })
    }
}

/// The key for a decoded path.
fn key_of(path: &[u8]) -> Result<String, Error> {
    // Keys are text.
    let path = std::str::from_utf8(path).map_err(|_| Error::Missing)?;
    let is_directory = path.is_empty() || path.ends_with('/');
    Ok(if is_directory { format!("{path}{INDEX}") } else { path.to_owned() })
}

/// The key of its index, if a path is a directory without its final slash.
fn index_of(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    (!path.is_empty() && !path.ends_with('/')).then(|| format!("{path}/{INDEX}"))
}

/// The key of an encoding next to another key.
fn beside(key: &str, coding: Coding) -> String {
    format!("{key}{}", coding.suffix())
}

fn failed(error: &OriginError) -> Error {
    match error {
        OriginError::Missing => Error::Missing,
        OriginError::Denied => Error::Denied,
        OriginError::TimedOut => Error::OriginSlow,
        OriginError::Busy => Error::Exhausted,
        OriginError::Changed | OriginError::Answer(_) | OriginError::Failed(_) => Error::OriginFailed,
        OriginError::Disk(_) => Error::Failed(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    use origin::Settings;

    use super::*;
    use crate::site::root::DirectoryHint;
    use crate::threads::interest::Waiter;

    #[test]
    fn while_an_origin_hangs_there_is_room_in_place_of_those_who_left_and_no_more() {
        let place = tempfile::tempdir().expect("a directory");
        // It takes connections, and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").expect("an address");
        let minute = Duration::from_secs(60);
        let origin = Origin::start(Settings {
            bucket: "s3://bucket".parse().expect("a bucket"),
            endpoint: Some(format!("http://{}", silent.local_addr().expect("an address"))),
            allow_http: true,
            authorities: None,
            region: None,
            credentials: None,
            anonymous: true,
            directory: place.path().join("cache"),
            capacity: 64 << 20,
            objects: 100,
            ttl: minute,
            missing_ttl: minute,
            stale: minute,
            memory: 8 << 20,
            connect_timeout: minute,
            head_timeout: minute,
            block_timeout: minute,
        });
        let root = OriginRoot::new(origin.expect("an origin"), false);
        let (give, told) = channel();
        let find = |waiter: &Waiter| {
            let give = give.clone();
            let lookup = Lookup::One(b"a".to_vec(), DirectoryHint::Unknown);
            // At the end of the test, nobody receives it.
            root.find(lookup, waiter.interest(), move |_, found| {
                let _ = give.send(found.err());
            });
        };
        let (left, stays) = (Waiter::default(), Waiter::default());
        let refused = (0..100_000).find(|_| {
            find(&left);
            told.try_recv() == Ok(Some(Error::Exhausted))
        });
        let taken = refused.expect("a limit");
        drop(left);
        for _ in 0..taken {
            assert_eq!(told.recv(), Ok(Some(Error::Failed(Errno::IO))), "they end");
        }
        (0..taken).for_each(|_| find(&stays));
        assert!(told.try_recv().is_err(), "there is room");
        find(&stays);
        assert_eq!(told.try_recv(), Ok(Some(Error::Exhausted)));
    }
}
