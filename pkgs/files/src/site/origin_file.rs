//! A file from an origin, complete or not. Through it, the code that sends an incomplete file requests the missing
//! parts.

use std::ops::Range;
use std::sync::Arc;

use origin::metadata::Metadata;
use origin::{Error, Fetched, Object, Origin};

/// The file's object.
#[derive(Clone, Debug)]
pub struct OriginFile {
    origin: Origin,
    object: Arc<Object>,
    /// Whether it was complete when the file was opened, so that its bytes may be sent like any file's.
    is_whole: bool,
}

/// Tells whoever is waiting, even if the work ends in a panic or with the process.
pub(super) struct Promise<T, F: FnOnce(T)>(Option<(F, T)>);

impl<T, F: FnOnce(T)> Promise<T, F> {
    /// `otherwise` is the result if there is no other.
    pub(super) fn new(done: F, otherwise: T) -> Self {
        Self(Some((done, otherwise)))
    }

    /// Tells the result.
    pub(super) fn keep(mut self, result: T) {
        if let Some((done, _)) = self.0.take() {
            done(result);
        }
    }
}

impl<T, F: FnOnce(T)> Drop for Promise<T, F> {
    fn drop(&mut self) {
        if let Some((done, otherwise)) = self.0.take() {
            done(otherwise);
        }
    }
}

impl OriginFile {
    /// For an object; `is_whole` says whether it was complete before the file's state was read.
    pub fn new(origin: Origin, object: Arc<Object>, is_whole: bool) -> Self {
        Self { origin, object, is_whole }
    }

    /// The origin's metadata for it.
    pub fn metadata(&self) -> &Metadata {
        &self.object.metadata
    }

    /// Whether all of its bytes are in the file.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether it was evicted from the cache, so that keeping it open takes room from others.
    pub fn is_evicted(&self) -> bool {
        self.object.is_stored() && self.object.is_gone()
    }

    /// Whether it is the same version of the same object, in the same state.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object) && self.is_whole == other.is_whole
    }

    /// The end of the bytes that are in the file without a gap from the start of `range`.
    pub fn available(&self, range: &Range<u64>) -> u64 {
        self.object.available(range)
    }

    /// Makes the origin fetch the start of `wanted`, together with what follows as far as possible.
    pub fn fetch(&self, wanted: Range<u64>, done: impl FnOnce(Result<Fetched, Error>) + Send + 'static) {
        let (origin, object) = (self.origin.clone(), Arc::clone(&self.object));
        let promise = Promise::new(done, Err(Error::Busy));
        self.origin.spawn(async move { promise.keep(origin.fetch(&object, wanted).await) });
    }
}
