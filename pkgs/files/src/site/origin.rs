//! Files in object storage instead of a directory, through the cache of the `origin` crate.
//!
//! A complete cached object is a file like any other. Nothing here waits for the network: the origin's own threads do,
//! and call back.

use std::sync::Arc;

use futures_util::future::join3;
use origin::{Error as OriginError, Known, Object, Origin};
use rustix::io::Errno;

use super::lookup::{Candidates, Choice, Lookup, Named};
use super::origin_file::{OriginFile, Promise};
use super::root::{Error, FileIdentity, Found, INDEX, OpenedFile};
use crate::http::encoding::Coding;
use crate::http::media_type::{is_text, media_type};

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
    /// it is what was asked for, as [`Candidates`] says.
    pub fn find(&self, lookup: Lookup, done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static) {
        let (paths, asked) = match lookup {
            Lookup::One(path, _) => (vec![path.clone()], path),
            Lookup::First { paths, asked } => (paths, asked),
        };
        let this = self.clone();
        let otherwise = (asked.clone(), Err(Error::Failed(Errno::IO)));
        let promise = Promise::new(move |(path, found)| done(path, found), otherwise);
        self.origin.spawn(async move {
            let mut candidates = Candidates::new(&paths, &asked);
            let mut last = Err(Error::Missing);
            for (at, path) in paths.iter().enumerate() {
                if candidates.is_over(at) {
                    break;
                }
                let found = this.look(path).await;
                let named = match &found {
                    Err(Error::Missing) => Named::Nothing,
                    Err(_) => return promise.keep((path.clone(), found)),
                    Ok(Found::File(_) | Found::Listing(_)) => Named::Answer,
                    Ok(Found::Directory) => Named::Directory,
                };
                match candidates.choose(at, named) {
                    Choice::Answer => return promise.keep((path.clone(), found)),
                    // Its path is the requested one.
                    Choice::Keep => last = found,
                    Choice::Kept => break,
                    Choice::Next => {}
                }
            }
            promise.keep((asked, last));
        });
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
