//! An open file with its ready-made heads.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::copy::{CopySlot, FileCopy};
use super::memory_copy::MemoryCopy;
use super::pipe_copy::PipeCopy;
use crate::disk::ring_file::{RingFile, open_direct};
use crate::http::conditional::Validators;
use crate::http::date;
use crate::http::encoding::Coding;
use crate::http::media_type::media_type;
use crate::site::origin_file::OriginFile;
use crate::site::root::{FileIdentity, OpenedFile};
use crate::site::rules::{Cors, Policy};
use crate::variants::Variant;

/// A file whose last change is younger may change again without its time of change telling: kernels before
/// 6.13 tell times apart by their timer tick, 10 ms at most. Its bytes are not kept.
const SETTLED: Duration = Duration::from_millis(50);

/// A file is hot when it was asked for so often within so many ticks: a copy costs as much as is saved
/// by some ten requests.
const HOT: (u32, u32) = (16, 40);

/// An open file, one coding of what a path names.
#[derive(Debug)]
pub struct OpenFile {
    path: Box<[u8]>,
    /// The file. Shared with the threads that wait for the disk.
    fd: Arc<OwnedFd>,
    /// What it was like when it was opened.
    pub identity: FileIdentity,
    etag: String,
    modified: SystemTime,
    /// `Content-Type` and `Content-Encoding`.
    kind: String,
    /// `ETag`, `Last-Modified`, `Vary` and what the rules add.
    fields: String,
    /// The head of a 200, up to its tail.
    pub ok: Box<[u8]>,
    /// The head of a 304, up to its tail.
    pub not_modified: Box<[u8]>,
    bytes: OnceCell<Box<[u8]>>,
    /// Whether it turned out that it cannot be read around the page cache.
    refuses_direct: Cell<bool>,
    /// Whether its reads may wait.
    waits: Cell<bool>,
    /// Whether its reads go around the page cache, for those that were begun so.
    is_direct: Cell<bool>,
    /// Until this tick all of it is believed to be in the page cache.
    pub resident_until: Cell<u32>,
    /// Its copy in pipes, where it was found last.
    pipe_copy: RefCell<Weak<FileCopy<PipeCopy>>>,
    /// Its copy in memory, where it was found last.
    memory_copy: RefCell<Weak<FileCopy<MemoryCopy>>>,
    /// Since which tick it was asked for how often.
    heat: Cell<(u32, u32)>,
    /// The object it is of.
    origin: Option<OriginFile>,
}

/// What heads tell of a file.
struct Told {
    etag: String,
    modified: SystemTime,
    coding: Option<Coding>,
    varies: bool,
    origin: Option<OriginFile>,
}

impl OpenFile {
    /// Makes the heads of the file at `path` below the root, at the time `now`. `varies` is whether there are other codings of it.
    pub fn new(
        opened: OpenedFile,
        path: &[u8],
        coding: Option<Coding>,
        varies: bool,
        policy: &Policy,
        charset: &str,
        now: SystemTime,
    ) -> Self {
        if let Some(origin) = opened.origin {
            let metadata = origin.metadata();
            let (etag, modified) = (metadata.etag.clone(), date::last_modified(metadata.modified, now));
            let of = Told { etag, modified, coding, varies, origin: Some(origin) };
            return Self::told((Arc::new(opened.fd), opened.identity), path, of, policy, charset);
        }
        let (seconds, nanoseconds) = opened.identity.modified;
        let suffix = coding.map_or("", Coding::name);
        let dash = if suffix.is_empty() { "" } else { "-" };
        let etag = format!(
            "\"{:x}-{:x}{dash}{suffix}\"",
            i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds),
            opened.identity.size
        );
        let modified = date::last_modified(seconds, now);
        let of = Told { etag, modified, coding, varies, origin: None };
        Self::told((Arc::new(opened.fd), opened.identity), path, of, policy, charset)
    }

    /// A coding that was made of this file.
    pub fn variant(&self, variant: &Variant, coding: Coding, policy: &Policy, charset: &str) -> Self {
        // Its bytes may be others one day, with another version of what makes them.
        let etag = format!("{}-{}-{:x}\"", self.etag.trim_end_matches('"'), coding.name(), variant.digest);
        let origin = None;
        let of = Told { etag, modified: self.modified, coding: Some(coding), varies: true, origin };
        Self::told((Arc::clone(&variant.fd), variant.identity), &self.path, of, policy, charset)
    }

    fn told(
        (fd, identity): (Arc<OwnedFd>, FileIdentity),
        path: &[u8],
        Told { etag, modified, coding, varies, origin }: Told,
        policy: &Policy,
        charset: &str,
    ) -> Self {
        let size = identity.size;
        // What a coding is coded of has the type; of the coding itself the origin may say anything.
        let metadata = origin.as_ref().map(OriginFile::metadata).filter(|_| coding.is_none());
        let stored = metadata.and_then(|metadata| metadata.kind.clone());
        let mut kind = format!("content-type: {}\r\n", stored.unwrap_or_else(|| media_type(path, charset)));
        if let Some(coding) = coding {
            let _ = write!(kind, "content-encoding: {}\r\n", coding.name());
        }
        let mut fields = format!("etag: {etag}\r\nlast-modified: {}\r\n", date::text(modified));
        if varies {
            fields.push_str("vary: accept-encoding\r\n");
        }
        if matches!(policy.cors, Cors::Listed(_)) {
            fields.push_str("vary: origin\r\n");
        }
        fields.push_str(&policy.fields);
        for (name, value) in origin.iter().flat_map(|origin| &origin.metadata().fields) {
            let said = |fields: &str| fields.lines().any(|line| line.split(':').next() == Some(name));
            // Rules go before what the origin says.
            match name.as_str() {
                "content-encoding" if coding.is_none() => {
                    let _ = write!(kind, "{name}: {value}\r\n");
                }
                "content-encoding" => {}
                _ if said(&fields) => {}
                _ => {
                    let _ = write!(fields, "{name}: {value}\r\n");
                }
            }
        }
        let ok =
            format!("HTTP/1.1 200 OK\r\n{kind}content-length: {size}\r\naccept-ranges: bytes\r\n{fields}");
        let not_modified = format!("HTTP/1.1 304 Not Modified\r\n{fields}");
        Self {
            path: path.into(),
            fd,
            identity,
            etag,
            modified,
            kind,
            fields,
            ok: ok.into_bytes().into(),
            not_modified: not_modified.into_bytes().into(),
            bytes: OnceCell::new(),
            refuses_direct: Cell::default(),
            waits: Cell::default(),
            is_direct: Cell::default(),
            resident_until: Cell::new(0),
            pipe_copy: RefCell::default(),
            memory_copy: RefCell::default(),
            heat: Cell::default(),
            origin,
        }
    }

    /// Its path below the root, without what a coding beside it ends with.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The object it is of; none where it is a file of a directory.
    pub fn origin(&self) -> Option<&OriginFile> {
        self.origin.as_ref()
    }

    /// The object it is of, where not all of that was there when it was opened: its bytes are sent as they come.
    pub fn incomplete(&self) -> Option<&OriginFile> {
        self.origin.as_ref().filter(|origin| !origin.is_whole())
    }

    /// Counts that it is asked for, and says each time this was often enough to be called hot.
    pub fn is_hot(&self, tick: u32) -> bool {
        if self.incomplete().is_some() {
            return false;
        }
        let (often, within) = HOT;
        let (since, count) = self.heat.get();
        let (since, count) = if tick - since > within { (tick, 1) } else { (since, count + 1) };
        self.heat.set(if count < often { (since, count) } else { (tick, 0) });
        count >= often
    }

    /// Whether its last change is long enough ago for any other to tell.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.identity.modified;
        let changed = u64::try_from(seconds).ok();
        let changed = changed.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)));
        changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|age| age > SETTLED))
    }

    /// What conditions are judged by.
    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: &self.etag, modified: self.modified }
    }

    /// The media type and coding, with their line ends.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What every answer with it has, with line ends.
    pub fn fields(&self) -> &str {
        &self.fields
    }

    /// Its bytes, where they are kept in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get().map(|bytes| &**bytes)
    }

    /// Keeps its bytes in memory, where they are in the page cache and will not change unnoticed. Returns whether.
    pub fn keep_bytes(&self, now: SystemTime) -> bool {
        if self.bytes.get().is_some() {
            return true;
        }
        if !self.is_settled(now) || self.incomplete().is_some() {
            return false;
        }
        let Ok(size) = usize::try_from(self.identity.size) else { return false };
        let mut bytes = vec![0; size].into_boxed_slice();
        let buffers = &mut [std::io::IoSliceMut::new(&mut bytes)];
        let read = preadv2(self.fd(), buffers, 0, ReadWriteFlags::NOWAIT);
        // Looked at after reading: what was read while it changed is not kept.
        if read != Ok(size) || !self.identity.is_unchanged(&self.fd) {
            return false;
        }
        self.bytes.set(bytes).is_ok()
    }

    /// The file, for whoever reads through the page cache.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        if self.is_direct.replace(false) {
            // What was begun around it goes on through it: that is as aligned as it has to be.
            let _ = fcntl_setfl(&*self.fd, OFlags::empty());
        }
        &self.fd
    }

    /// Whether its bytes are still those it was opened with.
    pub fn is_intact(&self) -> bool {
        // Blocks of one version come into it, and nothing else does.
        if self.incomplete().is_some() {
            return true;
        }
        FileIdentity::of(&*self.fd).is_ok_and(|(now, _)| self.identity.has_same_bytes(&now))
    }
}

impl RingFile for OpenFile {
    /// The file, to be read around the page cache; none where that cannot be. The flag is of an open file and counts when the
    /// kernel begins a read, so that it is set where nobody else has this one, which costs a tenth of opening it once more.
    fn around_the_page_cache(&self) -> Option<Arc<OwnedFd>> {
        if self.refuses_direct.get() {
            return None;
        }
        if self.is_direct.get() {
            return Some(Arc::clone(&self.fd));
        }
        // What an origin has of it is not seen from here.
        let opened = if Arc::strong_count(&self.fd) == 1 && self.origin.is_none() {
            fcntl_setfl(&*self.fd, OFlags::DIRECT).map(|()| {
                self.is_direct.set(true);
                self.waits.set(true);
                Arc::clone(&self.fd)
            })
        } else {
            open_direct(&self.fd)
        };
        // Its file system cannot; what is short now need not be later.
        opened.inspect_err(|errno| self.refuses_direct.set(*errno == Errno::INVAL)).ok()
    }

    /// The open file that all share, whose reads may wait from now on: it was opened so that they do not, and the ring would
    /// take that for an answer.
    fn through_the_page_cache(&self) -> Arc<OwnedFd> {
        let fd = self.fd();
        if !self.waits.replace(true) {
            // Where that fails, reads that would wait end with EAGAIN.
            let _ = fcntl_setfl(&**fd, OFlags::empty());
        }
        Arc::clone(fd)
    }

    /// It turned out that it cannot be read around the page cache.
    fn refuse_direct(&self) {
        self.refuses_direct.set(true);
    }
}

impl CopySlot<PipeCopy> for OpenFile {
    fn slot(&self) -> &RefCell<Weak<FileCopy<PipeCopy>>> {
        &self.pipe_copy
    }
}

impl CopySlot<MemoryCopy> for OpenFile {
    fn slot(&self) -> &RefCell<Weak<FileCopy<MemoryCopy>>> {
        &self.memory_copy
    }
}
