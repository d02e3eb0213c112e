//! Look-ups: what the catalogue and the origin know about a key. Only one runs at a time per key.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use std::collections::HashMap;
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};

use super::fetch::Source;
use super::{Inner, Known, Looking};
use crate::blocks::{self, Blocks};
use crate::catalogue::{Entry, Record};
use crate::disk::{Directory, FILE_BYTES, Files};
use crate::error::Error;
use crate::metadata::{MAX_KEY_BYTES, Metadata};
use crate::object::Object;
use crate::remote::{Conditional, Part};

/// How many keys may be looked up or wait. Further ones are refused.
const MAX_LOOKS: usize = 4096;

/// After this time, a stale object is served although the origin hasn't answered yet.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// How long to wait after a failure before asking the origin about the same key again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The same, if there is no stale object to serve.
const FAIL_AGAIN: Duration = Duration::from_secs(1);

/// How often to repeat the look-up of an object that was evicted before it was opened.
const TRIES: usize = 4;

/// Ends a look-up, even one that panics.
struct Ends {
    this: Arc<Inner>,
    key: Arc<str>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.this.looks().remove(&self.key);
    }
}

impl Inner {
    pub(super) fn known(self: &Arc<Self>, key: &str) -> Known {
        if key.len() > MAX_KEY_BYTES {
            return Known::Failed(Error::Missing);
        }
        match self.catalogue.get(key) {
            Entry::Record(record) if record.is_fresh() => {
                record.used();
                match self.open(&record, false) {
                    Ok(Some(object)) => {
                        self.metrics.hits.add(1);
                        Known::Object(object)
                    }
                    _ => Known::Unknown,
                }
            }
            Entry::Failed(error) => Known::Failed(error),
            Entry::Passing(object) => Known::Object(object),
            Entry::Record(_) | Entry::Unknown => Known::Unknown,
        }
    }

    pub(super) async fn find(this: &Arc<Self>, key: &str, bytes: bool) -> Result<Arc<Object>, Error> {
        for _ in 0..TRIES {
            let known = match this.known(key) {
                Known::Object(object) => return Ok(object),
                Known::Failed(error) => return Err(error),
                Known::Unknown => match this.catalogue.get(key) {
                    Entry::Record(record) => Some(record),
                    _ => None,
                },
            };
            if let Some(record) = known.as_ref().filter(|record| record.is_fresh()) {
                match this.open_waiting(record).await? {
                    Some(object) => return Ok(object),
                    None => continue,
                }
            }
            let stale = known.filter(|record| record.may_be_stale(this.settings.stale));
            let mut looking = match (this.look(key, bytes), &stale) {
                (Ok(looking), _) => looking,
                (Err(error), None) => return Err(error),
                (Err(error), Some(record)) => {
                    let object = this.open_waiting(record).await?;
                    return object.inspect(|_| this.metrics.stale.add(1)).ok_or(error);
                }
            };
            let told = async { looking.wait_for(Option::is_some).await.ok().and_then(|told| told.clone()) };
            let told = match &stale {
                Some(_) => timeout(STALE_AFTER, told).await.ok(),
                None => Some(told.await),
            };
            match (told, stale) {
                (Some(told), _) => return told.unwrap_or(Err(Error::Busy)),
                (None, Some(record)) => {
                    if let Some(object) = this.open_waiting(&record).await? {
                        this.metrics.stale.add(1);
                        return Ok(object);
                    }
                }
                (None, None) => {}
            }
        }
        Err(Error::Busy)
    }

    /// Joins the look-up of a key, or starts one, which continues whether or not anybody waits for it.
    fn look(self: &Arc<Self>, key: &str, bytes: bool) -> Result<Looking, Error> {
        let mut looks = self.looks();
        if let Some(looking) = looks.get(key) {
            return Ok(looking.clone());
        }
        if looks.len() >= MAX_LOOKS {
            self.metrics.failed(&Error::Busy);
            return Err(Error::Busy);
        }
        let key: Arc<str> = key.into();
        let (tell, looking) = watch::channel(None);
        looks.insert(Arc::clone(&key), looking.clone());
        let this = Arc::clone(self);
        let ends = Ends { this: Arc::clone(self), key: Arc::clone(&key) };
        self.handle.spawn(async move {
            let result = this.look_now(&key, bytes).await;
            // From here on, a new caller finds the result in the catalogue.
            drop(ends);
            tell.send_replace(Some(result));
        });
        Ok(looking)
    }

    pub(super) fn looks(&self) -> MutexGuard<'_, HashMap<Arc<str>, Looking>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an object fresh that the origin has confirmed, and from time to time records that on the disk, so that a
    /// later process knows it.
    fn confirmed(self: &Arc<Self>, record: &Record) {
        if record.refresh(self.settings.ttl, true) {
            let (this, name) = (Arc::clone(self), record.name.clone());
            self.handle.spawn_blocking(move || this.directory.touch(&name));
        }
    }

    async fn look_now(self: &Arc<Self>, key: &Arc<str>, bytes: bool) -> Result<Arc<Object>, Error> {
        let known = match self.catalogue.get(key) {
            Entry::Record(record) => Some(record),
            _ => None,
        };
        let etag = known.as_ref().map(|record| record.metadata.etag.as_str());
        let until = Instant::now() + self.settings.block_timeout;
        let looked = async {
            let _permit = self.look_permits.acquire().await.map_err(|_| Error::Busy)?;
            self.remote.get_unless(key, etag, bytes).await
        };
        let looked = timeout_at(until.into(), looked).await.unwrap_or(Err(Error::TimedOut));
        let error = match (looked, &known) {
            (Ok(Conditional::NotModified), Some(record)) => {
                self.metrics.unchanged.add(1);
                self.confirmed(record);
                match self.open_waiting(record).await? {
                    Some(object) => return Ok(object),
                    None => Error::Busy,
                }
            }
            (Ok(Conditional::NotModified), None) => {
                Error::Answer("it is said to be as it was, and was not known".to_owned())
            }
            // A server without support for If-None-Match sends the known version again.
            (Ok(Conditional::Found(metadata, _)), Some(record)) if metadata == *record.metadata => {
                self.metrics.looks.add(1);
                self.confirmed(record);
                match self.open_waiting(record).await? {
                    Some(object) => return Ok(object),
                    None => Error::Busy,
                }
            }
            (Ok(Conditional::Found(metadata, part)), _) => {
                self.metrics.looks.add(1);
                return self.take_in(metadata, part).await;
            }
            (Err(error), _) => error,
        };
        self.metrics.failed(&error);
        if !matches!(error, Error::Missing)
            && let Some(times) = self.looks_failed.due()
        {
            tracing::warn!(key = &**key, %error, times, "the origin was asked in vain");
        }
        match known {
            Some(record) if error.allows_stale() && record.may_be_stale(self.settings.stale) => {
                record.refresh(ASK_AGAIN.min(self.settings.ttl), false);
                if let Some(object) = self.open_waiting(&record).await? {
                    self.metrics.stale.add(1);
                    return Ok(object);
                }
            }
            // The object is gone, or has changed.
            Some(record) if !error.allows_stale() => self.drop_record(&record).await,
            _ => {}
        }
        if error == Error::Busy {
            return Err(error);
        }
        let ttl = if error == Error::Missing { self.settings.missing_ttl } else { FAIL_AGAIN };
        self.catalogue.failed(key, error.clone(), ttl);
        Err(error)
    }

    /// Adds a new version of an object, and its first block.
    async fn take_in(self: &Arc<Self>, metadata: Metadata, part: Option<Part>) -> Result<Arc<Object>, Error> {
        if blocks::count(metadata.size).is_none() {
            return Err(Error::Answer("it is larger than any object".to_owned()));
        }
        let metadata = Arc::new(metadata);
        let (this, of) = (Arc::clone(self), Arc::clone(&metadata));
        let object = self.handle.spawn_blocking(move || this.make(of)).await;
        let object = object.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        if let Some(part) = part {
            object.join(0, |tell| self.begin(Arc::clone(&object), 0, Source::Part(part), tell));
        }
        Ok(object)
    }

    /// Creates the files of an object. If there is no room, the object isn't stored.
    fn make(self: &Arc<Self>, metadata: Arc<Metadata>) -> io::Result<Arc<Object>> {
        let fits = metadata.size <= self.settings.capacity.saturating_sub(2 * FILE_BYTES);
        if fits && self.alone.load(Ordering::Relaxed) {
            let name = metadata.name(&self.bucket);
            if self.catalogue.take_name(&name) {
                match self.directory.create(&name, &metadata) {
                    Ok(files) => return Ok(self.opened(metadata, name, files)),
                    Err(error) => {
                        self.catalogue.free_name(&name);
                        self.no_room(&error);
                    }
                }
            }
        }
        let data = Directory::anonymous(&metadata)?;
        let blocks = Blocks::none(metadata.size);
        let files = Files { data, marks: None };
        // The origin no longer has the previous version.
        if let Entry::Record(old) = self.catalogue.get(&metadata.key) {
            self.drop_now(&old);
        }
        let object = Object::new(metadata, files, blocks, None);
        self.catalogue.passes(&object, self.settings.ttl);
        Ok(object)
    }

    fn opened(self: &Arc<Self>, metadata: Arc<Metadata>, name: String, files: Files) -> Arc<Object> {
        let blocks = Blocks::none(metadata.size);
        let open = |record: &Arc<Record>| {
            Object::new(Arc::clone(&metadata), files, blocks, Some(self.lease(record)))
        };
        let (object, out) = self.catalogue.insert(Arc::clone(&metadata), name, self.settings.ttl, open);
        out.iter().for_each(|record| self.forget(record));
        object
    }
}
