//! An open file with its prepared heads.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use origin::metadata::Metadata;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::copy::{CopySlot, FileCopy};
use super::memory_budget::{KeptBytes, MemoryBudget};
use super::memory_copy::MemoryCopy;
use super::pipe_copy::PipeCopy;
use crate::disk::ring_file::{RingFile, open_direct};
use crate::http::conditional::Validators;
use crate::http::date;
use crate::http::encoding::Coding;
use crate::http::media_type::media_type;
use crate::site::origin_file::OriginFile;
use crate::site::root::{FileIdentity, OpenedFile};
use crate::site::rules::Policy;
use crate::variants::Variant;

/// If a file's last change is more recent than this, it may change again without a new modification time, since kernels
/// before 6.13 only distinguish timer ticks, of up to 10 ms. Its bytes are then not kept.
const SETTLED: Duration = Duration::from_millis(50);

/// A file is hot after this many requests within this many ticks: making a copy costs about as much as ten requests
/// save.
const HOT: (u32, u32) = (16, 40);

/// The first lines of the heads.
const OK: &str = "HTTP/1.1 200 OK\r\n";
const NOT_MODIFIED: &str = "HTTP/1.1 304 Not Modified\r\n";

/// How the line of the type begins, and that of the tag.
const CONTENT_TYPE: &str = "content-type: ";
const ETAG: &str = "etag: ";

const CONTENT_ENCODING: &str = "content-encoding";

/// More than the heads of a file have whose rules and origin say nothing.
const HEADS_BYTES: usize = 384;

/// An open file: one encoding of what a path names.
#[derive(Debug)]
pub struct OpenFile {
    path: Box<[u8]>,
    /// The file, shared with threads that wait for the disk.
    fd: Arc<OwnedFd>,
    /// Its state when it was opened.
    pub identity: FileIdentity,
    /// None if its time says nothing.
    modified: Option<SystemTime>,
    /// The head of a 200, then that of a 304, both without their ends: in one piece, since most files that are not in
    /// memory are sent once.
    heads: Box<str>,
    /// Where its type and its encoding end, which follow the line of the status.
    kind_end: usize,
    /// Where its fields start, of which the first is its tag. They are the rest of the head of a 200.
    fields_start: usize,
    etag_end: usize,
    ok_end: usize,
    bytes: OnceCell<KeptBytes>,
    /// Whether direct reads, around the page cache, have turned out to fail.
    refuses_direct: Cell<bool>,
    /// Whether its reads may wait.
    waits: Cell<bool>,
    /// Whether reads that were started as direct ones still are.
    is_direct: Cell<bool>,
    /// Until this tick, all of it is assumed to be in the page cache.
    pub resident_until: Cell<u32>,
    /// Its last found copy in pipes.
    pipe_copy: RefCell<Weak<FileCopy<PipeCopy>>>,
    /// Its last found copy in memory.
    memory_copy: RefCell<Weak<FileCopy<MemoryCopy>>>,
    /// A tick, and the number of requests since then.
    heat: Cell<(u32, u32)>,
    /// Its object, if it comes from an origin.
    origin: Option<OriginFile>,
}

/// The parts of a file's heads.
struct Told<'m> {
    etag: String,
    modified: Option<SystemTime>,
    coding: Option<Coding>,
    varies: bool,
    /// What an origin says about the plain file: its type and its fields are those of all encodings.
    metadata: Option<&'m Metadata>,
}

impl OpenFile {
    /// Makes the heads of the file at `path` below the root, at the time `now`. `coded` is for an encoding beside the
    /// plain file: which one, and what an origin says about the plain file. `varies` says whether it has other
    /// encodings.
    pub fn new(
        opened: OpenedFile,
        path: &[u8],
        coded: Option<(Coding, Option<&Metadata>)>,
        varies: bool,
        policy: &Policy,
        charset: &str,
        now: SystemTime,
    ) -> Self {
        let coding = coded.map(|(coding, _)| coding);
        if let Some(origin) = opened.origin {
            let own = origin.metadata();
            let (etag, modified) = (own.etag.clone(), Some(date::last_modified(own.modified, now)));
            let metadata = match coded {
                Some((_, plain)) => plain,
                None => Some(own),
            };
            let of = Told { etag, modified, coding, varies, metadata };
            let mut file = Self::told((Arc::new(opened.fd), opened.identity), path, of, policy, charset);
            file.origin = Some(origin);
            return file;
        }
        let suffix = coding.map_or("", Coding::name);
        let dash = if suffix.is_empty() { "" } else { "-" };
        let identity = opened.identity;
        let etag = format!("\"{}-{:x}{dash}{suffix}\"", opened.version(), identity.size);
        let modified = identity.is_dated().then(|| date::last_modified(identity.modified.0, now));
        let of = Told { etag, modified, coding, varies, metadata: None };
        Self::told((Arc::new(opened.fd), opened.identity), path, of, policy, charset)
    }

    /// An encoding that was made from this file.
    pub fn variant(&self, variant: &Variant, coding: Coding, policy: &Policy, charset: &str) -> Self {
        // A future version of the encoder may produce other bytes.
        let etag = format!("{}-{}-{:x}\"", self.etag().trim_end_matches('"'), coding.name(), variant.digest);
        // Only its heads are the object's: its bytes are there.
        let metadata = self.origin().map(OriginFile::metadata);
        let of = Told { etag, modified: self.modified, coding: Some(coding), varies: true, metadata };
        Self::told((Arc::clone(&variant.fd), variant.identity), &self.path, of, policy, charset)
    }

    fn told(
        (fd, identity): (Arc<OwnedFd>, FileIdentity),
        path: &[u8],
        Told { etag, modified, coding, varies, metadata }: Told<'_>,
        policy: &Policy,
        charset: &str,
    ) -> Self {
        let size = identity.size;
        let stored = metadata.and_then(|metadata| metadata.kind.as_deref());
        let others = || metadata.into_iter().flat_map(|metadata| &metadata.fields);
        let mut heads = String::with_capacity(HEADS_BYTES + 2 * policy.fields.len());
        heads.push_str(OK);
        match stored {
            Some(stored) => heads.extend([CONTENT_TYPE, stored, "\r\n"]),
            None => heads.extend([CONTENT_TYPE, &media_type(path, charset), "\r\n"]),
        }
        match coding {
            Some(coding) => heads.extend([CONTENT_ENCODING, ": ", coding.name(), "\r\n"]),
            None => others()
                .filter(|(name, _)| name == CONTENT_ENCODING)
                .for_each(|(_, value)| heads.extend([CONTENT_ENCODING, ": ", value, "\r\n"])),
        }
        let kind_end = heads.len();
        let _ = write!(heads, "content-length: {size}\r\naccept-ranges: bytes\r\n");
        let fields_start = heads.len();
        heads.extend([ETAG, &etag]);
        let etag_end = heads.len();
        heads.push_str("\r\n");
        if let Some(modified) = modified {
            heads.extend(["last-modified: ", &date::text(modified), "\r\n"]);
        }
        if varies {
            heads.push_str("vary: accept-encoding\r\n");
        }
        heads.push_str(&policy.fields);
        for (name, value) in others().filter(|(name, _)| name != CONTENT_ENCODING) {
            // Rules override what the origin says.
            let is_said = heads[fields_start..].lines().any(|line| line.split(':').next() == Some(name));
            if !is_said {
                heads.extend([name.as_str(), ": ", value, "\r\n"]);
            }
        }
        let ok_end = heads.len();
        heads.push_str(NOT_MODIFIED);
        heads.extend_from_within(fields_start..ok_end);
        Self {
            path: path.into(),
            fd,
            identity,
            modified,
            heads: heads.into_boxed_str(),
            kind_end,
            fields_start,
            etag_end,
            ok_end,
            bytes: OnceCell::new(),
            refuses_direct: Cell::default(),
            waits: Cell::default(),
            is_direct: Cell::default(),
            resident_until: Cell::new(0),
            pipe_copy: RefCell::default(),
            memory_copy: RefCell::default(),
            heat: Cell::default(),
            origin: None,
        }
    }

    /// Its path below the root, without the suffix of an encoding beside it.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Its object; none for a file in a directory.
    pub fn origin(&self) -> Option<&OriginFile> {
        self.origin.as_ref()
    }

    /// Its object, if that was incomplete when it was opened: its bytes are sent as they arrive.
    pub fn incomplete(&self) -> Option<&OriginFile> {
        self.origin.as_ref().filter(|origin| !origin.is_whole())
    }

    /// Counts a request. Returns true each time there were enough to call it hot.
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

    /// Whether its last change is old enough that another would be noticed.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.identity.modified;
        let changed = u64::try_from(seconds).ok();
        let changed = changed.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)));
        changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|age| age > SETTLED))
    }

    /// Its validators, for conditional requests.
    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag(), modified: self.modified }
    }

    /// The head of a 200, without its end.
    pub fn ok(&self) -> &[u8] {
        &self.heads.as_bytes()[..self.ok_end]
    }

    /// The head of a 304, without its end.
    pub fn not_modified(&self) -> &[u8] {
        &self.heads.as_bytes()[self.ok_end..]
    }

    /// The media type and encoding, with line ends.
    pub fn kind(&self) -> &str {
        &self.heads[OK.len()..self.kind_end]
    }

    /// The fields of every answer with it, with line ends: `ETag`, `Last-Modified`, `Vary`, and those of rules.
    pub fn fields(&self) -> &str {
        &self.heads[self.fields_start..self.ok_end]
    }

    fn etag(&self) -> &str {
        &self.heads[self.fields_start + ETAG.len()..self.etag_end]
    }

    /// Its bytes, if they are in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get().map(|bytes| &**bytes)
    }

    /// Keeps its bytes in memory, if there is room for them, and if they are in the page cache and cannot change
    /// unnoticed. Returns whether it does.
    pub fn keep_bytes(&self, now: SystemTime, memory: &MemoryBudget) -> bool {
        if self.bytes.get().is_some() {
            return true;
        }
        if !self.is_settled(now) || self.incomplete().is_some() {
            return false;
        }
        let size = usize::try_from(self.identity.size).ok();
        let Some(mut bytes) = size.and_then(|size| memory.take(size)) else { return false };
        let buffers = &mut [std::io::IoSliceMut::new(&mut bytes)];
        let read = preadv2(self.fd(), buffers, 0, ReadWriteFlags::NOWAIT);
        // Checked after reading, so that data read during a change is not kept.
        if read != Ok(bytes.len()) || !self.identity.is_unchanged(&self.fd) {
            return false;
        }
        self.bytes.set(bytes).is_ok()
    }

    /// The file, for reading through the page cache.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        if self.is_direct.replace(false) {
            // Reads that were started as direct ones continue through the page cache; they are aligned enough.
            let _ = fcntl_setfl(&*self.fd, OFlags::empty());
        }
        &self.fd
    }

    /// Whether its bytes are still those that it was opened with.
    pub fn is_intact(&self) -> bool {
        // Only blocks of one version are ever written to it.
        if self.incomplete().is_some() {
            return true;
        }
        FileIdentity::of(&*self.fd).is_ok_and(|(now, _)| self.identity.has_same_bytes(&now))
    }
}

impl RingFile for OpenFile {
    /// The file for direct reads, around the page cache; none if that fails. The flag belongs to an open file and
    /// counts when the kernel starts a read. So it is set if nobody else uses this one, which costs a tenth of opening
    /// it again.
    fn around_the_page_cache(&self) -> Option<Arc<OwnedFd>> {
        if self.refuses_direct.get() {
            return None;
        }
        if self.is_direct.get() {
            return Some(Arc::clone(&self.fd));
        }
        // An origin's own uses of it are not visible here.
        let opened = if Arc::strong_count(&self.fd) == 1 && self.origin.is_none() {
            fcntl_setfl(&*self.fd, OFlags::DIRECT).map(|()| {
                self.is_direct.set(true);
                self.waits.set(true);
                Arc::clone(&self.fd)
            })
        } else {
            open_direct(&self.fd)
        };
        // Its file system does not support it; other errors may be temporary.
        opened.inspect_err(|errno| self.refuses_direct.set(*errno == Errno::INVAL)).ok()
    }

    /// The shared open file, whose reads may wait from now on. It was opened with reads that do not wait, and the ring
    /// would take their error for the answer.
    fn through_the_page_cache(&self) -> Arc<OwnedFd> {
        let fd = self.fd();
        if !self.waits.replace(true) {
            // If this fails, reads that would wait end with EAGAIN.
            let _ = fcntl_setfl(&**fd, OFlags::empty());
        }
        Arc::clone(fd)
    }

    /// Records that direct reads fail.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::copies::tests::file;

    #[test]
    fn an_encoding_has_the_type_and_the_fields_that_the_plain_object_has() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let object = Metadata {
            key: "a.html".to_owned(),
            etag: "\"e\"".to_owned(),
            size: 4,
            modified: 1,
            kind: Some("text/plain".to_owned()),
            fields: vec![
                field("cache-control", "private, no-store"),
                field("content-disposition", "attachment"),
                field("content-encoding", "aes128gcm"),
            ],
        };
        for (rules, cache_control) in [("", "private, no-store"), ("cache-control: no-cache\r\n", "no-cache")]
        {
            let policy = Policy { fields: rules.to_owned(), ..Policy::default() };
            for (coding, named) in [(None, "aes128gcm"), (Some(Coding::Gzip), "gzip")] {
                let (fd, identity) = file(b"text");
                let etag = "\"e\"".to_owned();
                let metadata = Some(&object);
                let of = Told { etag, modified: None, coding, varies: true, metadata };
                let file = OpenFile::told((Arc::new(fd), identity), b"a.html", of, &policy, "utf-8");
                let kind = format!("content-type: text/plain\r\ncontent-encoding: {named}\r\n");
                assert_eq!(file.kind(), kind, "{rules}");
                let mut fields: Vec<&str> = file.fields().lines().collect();
                fields.sort_unstable();
                let cache_control = format!("cache-control: {cache_control}");
                let all = [
                    &*cache_control,
                    "content-disposition: attachment",
                    "etag: \"e\"",
                    "vary: accept-encoding",
                ];
                assert_eq!(fields, all, "{coding:?}");
                assert_eq!(file.validators().etag, "\"e\"");
                let (kind, fields) = (file.kind(), file.fields());
                let ok =
                    format!("HTTP/1.1 200 OK\r\n{kind}content-length: 4\r\naccept-ranges: bytes\r\n{fields}");
                assert_eq!(str::from_utf8(file.ok()), Ok(&*ok));
                let not_modified = format!("HTTP/1.1 304 Not Modified\r\n{fields}");
                assert_eq!(str::from_utf8(file.not_modified()), Ok(&*not_modified));
                assert!(file.origin().is_none(), "its bytes are not fetched");
            }
        }
    }
}
