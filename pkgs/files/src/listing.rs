//! The entries of a directory, as a page or as JSON, in order, however many there are.
//!
//! A listing is written by a thread of its own, a block at a time, and waits while the client does. It keeps no
//! more than [`KEPT`] entries: a larger directory is read again and again, each pass for the entries that come
//! next in order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, Dir, FileType, StatxFlags, statx};

/// Entries kept in memory: names of 32 bytes take some 4 MiB.
const KEPT: usize = 32 * 1024;

/// A block is handed on once it has this many bytes.
pub const BLOCK_BYTES: usize = 64 * 1024;

/// What a name may have in a link without being escaped (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is to be listed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The directory, below the root, with its final slash.
    pub path: Vec<u8>,
    /// In which order.
    pub order: Order,
    /// As JSON instead of a page.
    pub json: bool,
    /// Whether names with a dot in front are shown.
    pub hidden: bool,
    /// Whether blocks are sent as chunks (RFC 9112, section 7.1).
    pub chunked: bool,
}

/// `?sort=name|size|time&order=asc|desc&format=html|json`, each optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub key: Key,
    /// The last first.
    pub descending: bool,
    /// The format, where it is asked for.
    pub json: Option<bool>,
}

/// By what entries are sorted; those alike, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// The bytes of the name.
    #[default]
    Name,
    /// Directories are 0.
    Size,
    /// Of the last change of the bytes.
    Time,
}

impl Key {
    fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Time => "time",
        }
    }
}

impl Order {
    /// Reads a query; none where it has a value nobody knows. Parameters nobody knows are ignored.
    pub fn parse(query: &str) -> Option<Self> {
        let mut order = Self::default();
        for parameter in query.split('&') {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("sort", "name") => order.key = Key::Name,
                ("sort", "size") => order.key = Key::Size,
                ("sort", "time") => order.key = Key::Time,
                ("order", "asc") => order.descending = false,
                ("order", "desc") => order.descending = true,
                ("format", "html") => order.json = Some(false),
                ("format", "json") => order.json = Some(true),
                ("sort" | "order" | "format", _) => return None,
                _ => {}
            }
        }
        Some(order)
    }

    fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let by = match self.key {
            Key::Name => Ordering::Equal,
            Key::Size => a.size.cmp(&b.size),
            Key::Time => a.modified.cmp(&b.modified),
        };
        let by = by.then_with(|| a.name.cmp(&b.name));
        if self.descending { by.reverse() } else { by }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Box<[u8]>,
    directory: bool,
    size: u64,
    /// Seconds since 1970.
    modified: i64,
}

/// An entry with its order, the last on top of a heap.
struct Ranked(Order, Entry);

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.compare(&self.1, &other.1)
    }
}

/// Why a listing ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be read.
    #[error(transparent)]
    Read(#[from] rustix::io::Errno),
    /// Nobody takes the blocks any more.
    #[error("nobody reads on")]
    Abandoned,
}

/// Writes a listing of `directory`, block by block, to `give`, which says whether to go on.
///
/// # Errors
/// [`Error`]; what was given until then is no whole listing.
pub fn write(
    request: &Request,
    directory: impl AsFd,
    give: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), Error> {
    write_keeping(KEPT, request, directory, give)
}

fn write_keeping(
    kept: usize,
    request: &Request,
    directory: impl AsFd,
    mut give: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), Error> {
    let mut text = String::with_capacity(BLOCK_BYTES + 1024);
    let mut give = |text: &mut String, end: bool| {
        let block = std::mem::take(text).into_bytes();
        let block = if request.chunked { chunk(&block, end) } else { block };
        if block.is_empty() || give(block) { Ok(()) } else { Err(Error::Abandoned) }
    };
    open(request, &mut text);
    let mut last: Option<Entry> = None;
    let mut first = true;
    loop {
        let entries = next(kept, request, &directory, last.as_ref())?;
        let whole = entries.len() < kept;
        for entry in entries {
            row(request, &entry, first, &mut text);
            first = false;
            if text.len() >= BLOCK_BYTES {
                give(&mut text, false)?;
            }
            last = Some(entry);
        }
        if whole {
            break;
        }
    }
    text.push_str(if request.json { "\n]\n" } else { "</table>\n" });
    give(&mut text, true)
}

/// The `kept` entries that come next behind `last`, in order.
fn next(
    kept: usize,
    request: &Request,
    directory: impl AsFd,
    last: Option<&Entry>,
) -> Result<Vec<Entry>, Error> {
    let order = request.order;
    let mut heap = BinaryHeap::new();
    for found in Dir::read_from(&directory)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name == b"." || name == b".." || (!request.hidden && name.starts_with(b".")) {
            continue;
        }
        // Sorted by name, most can be told to be of another pass without a look at them.
        if order.key == Key::Name {
            let compare = |other: &[u8]| if order.descending { other.cmp(name) } else { name.cmp(other) };
            if last.is_some_and(|last| compare(&last.name).is_le())
                || (heap.len() == kept
                    && heap.peek().is_some_and(|Ranked(_, worst)| compare(&worst.name).is_ge()))
            {
                continue;
            }
        }
        // What is gone meanwhile is not there. Links are not followed, for what they lead to may be none of ours.
        let found = statx(&directory, found.file_name(), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
        let Ok(stat) = found else { continue };
        let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
        let directory = match kind {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => continue,
        };
        let size = if directory { 0 } else { stat.stx_size };
        let entry = Entry { name: name.into(), directory, size, modified: stat.stx_mtime.tv_sec };
        if last.is_some_and(|last| order.compare(&entry, last).is_le()) {
            continue;
        }
        heap.push(Ranked(order, entry));
        if heap.len() > kept {
            heap.pop();
        }
    }
    Ok(heap.into_sorted_vec().into_iter().map(|Ranked(_, entry)| entry).collect())
}

/// A block as a chunk, and the last chunk behind it.
fn chunk(block: &[u8], end: bool) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(block.len() + 32);
    if !block.is_empty() {
        chunk.extend_from_slice(format!("{:x}\r\n", block.len()).as_bytes());
        chunk.extend_from_slice(block);
        chunk.extend_from_slice(b"\r\n");
    }
    if end {
        chunk.extend_from_slice(b"0\r\n\r\n");
    }
    chunk
}

fn open(request: &Request, text: &mut String) {
    if request.json {
        text.push('[');
        return;
    }
    let path = escape(&format!("/{}", String::from_utf8_lossy(&request.path)));
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>{path}</title>\n<style>body {{ font-family: sans-serif }} td {{ padding-right: 2em }} \
         td + td {{ text-align: right }}</style>\n<h1>{path}</h1>\n<table>\n<tr>"
    );
    for (key, title) in [(Key::Name, "Name"), (Key::Size, "Size"), (Key::Time, "Modified")] {
        // Asked for again, a column turns round.
        let descends = request.order.key == key && !request.order.descending;
        let order = if descends { "&amp;order=desc" } else { "" };
        let _ = write!(text, "<th><a href=\"?sort={}{order}\">{title}</a>", key.name());
    }
    text.push('\n');
    if !request.path.is_empty() {
        text.push_str("<tr><td><a href=\"../\">../</a>\n");
    }
}

fn row(request: &Request, entry: &Entry, first: bool, text: &mut String) {
    let name = String::from_utf8_lossy(&entry.name);
    let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(entry.modified).unwrap_or(0));
    let modified = httpdate::fmt_http_date(modified);
    let slash = if entry.directory { "/" } else { "" };
    if request.json {
        let comma = if first { "\n" } else { ",\n" };
        let name = serde_json::to_string(&name).expect("a text is JSON");
        let kind = if entry.directory { "directory" } else { "file" };
        let (size, seconds) = (entry.size, entry.modified);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{comma}{{\"name\":{name},\"type\":\"{kind}\",\"size\":{size},\"modified\":{seconds}}}"
        );
    } else {
        let link = percent_encode(&entry.name, ESCAPED);
        let (name, size) = (escape(&name), entry.size);
        let _ = if entry.directory {
            writeln!(text, "<tr><td><a href=\"{link}{slash}\">{name}{slash}</a><td><td>{modified}")
        } else {
            writeln!(text, "<tr><td><a href=\"{link}\">{name}</a><td>{size}<td>{modified}")
        };
    }
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(names: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().expect("a directory");
        for (number, name) in names.iter().enumerate() {
            fs::write(place.path().join(name), "x".repeat(100 - number)).expect("a file");
        }
        place
    }

    fn list(kept: usize, query: &str, place: &tempfile::TempDir) -> String {
        let order = Order::parse(query).expect("a query");
        let request = Request {
            path: b"p/".to_vec(),
            order,
            json: order.json.unwrap_or(false),
            hidden: false,
            chunked: false,
        };
        let mut all = Vec::new();
        let directory = fs::File::open(place.path()).expect("a directory");
        write_keeping(kept, &request, directory, |block| {
            all.extend_from_slice(&block);
            true
        })
        .expect("a listing");
        String::from_utf8(all).expect("text")
    }

    fn names(json: &str) -> Vec<String> {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        all.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn entries_come_in_order_however_few_are_kept() {
        let all: Vec<String> = (0..50).map(|n| format!("f{:02}", n * 37 % 50)).collect();
        let place = place(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let mut by_name = all.clone();
        by_name.sort();
        let mut by_size = all.clone();
        by_size.reverse();
        for kept in [1, 7, 49, 50, 51, 1000] {
            assert_eq!(names(&list(kept, "format=json", &place)), by_name, "{kept} kept");
            assert_eq!(names(&list(kept, "format=json&sort=size", &place)), by_size, "{kept} kept");
            assert_eq!(names(&list(kept, "format=json&sort=size&order=desc", &place)), all, "{kept} kept");
            let backwards: Vec<_> = by_name.iter().rev().cloned().collect();
            assert_eq!(names(&list(kept, "format=json&order=desc", &place)), backwards, "{kept} kept");
        }
    }

    #[test]
    fn names_are_escaped() {
        let place = place(&["a<b>\"&.txt", "c d%", ".hidden"]);
        fs::create_dir(place.path().join("dir")).expect("a directory");
        let page = list(100, "", &place);
        assert!(
            page.contains("<a href=\"a%3Cb%3E%22%26.txt\">a&lt;b&gt;&quot;&amp;.txt</a><td>100<td>"),
            "{page}"
        );
        assert!(page.contains("<a href=\"c%20d%25\">c d%</a>"), "{page}");
        assert!(page.contains("<a href=\"dir/\">dir/</a>"), "{page}");
        assert!(!page.contains("hidden"), "{page}");
        assert_eq!(names(&list(100, "format=json", &place)), ["a<b>\"&.txt", "c d%", "dir"]);
    }

    #[test]
    fn an_empty_directory_is_an_empty_listing() {
        let place = place(&[]);
        assert!(names(&list(10, "format=json", &place)).is_empty());
        assert!(list(10, "", &place).ends_with("</table>\n"));
    }

    #[test]
    fn a_query_that_says_nothing_known_is_refused() {
        assert_eq!(Order::parse(""), Some(Order::default()));
        assert_eq!(Order::parse("x=y&sort=time"), Some(Order { key: Key::Time, ..Order::default() }));
        for query in ["sort=colour", "order=up", "format=xml", "sort"] {
            assert_eq!(Order::parse(query), None, "{query}");
        }
    }
}
