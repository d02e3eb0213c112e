//! The entries of a directory, as a page or as JSON, in order, however many there are.
//!
//! A listing is written by a thread of its own, a block at a time, and waits while the client does. It keeps no
//! more than [`KEPT_BYTES`] of names: a larger directory is read again and again, each pass for those that come next
//! in order. What else is told of an entry is looked up when it is written.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, Dir, FileType, StatxFlags, statx};

/// Memory for names, in bytes. At least half of it is of use: a million names of 7 bytes take 8 to 15 passes.
const KEPT_BYTES: usize = 6 << 20;

/// What a name takes beside its bytes: itself, and what the allocator rounds up to.
const NAME_BYTES: usize = size_of::<Ranked>() + 16;

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

    fn compare(self, a: (i64, &[u8]), b: (i64, &[u8])) -> Ordering {
        if self.descending { b.cmp(&a) } else { a.cmp(&b) }
    }
}

/// A name, with what it is sorted by before that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranked {
    rank: i64,
    name: CString,
}

impl Ranked {
    fn key(&self) -> (i64, &[u8]) {
        (self.rank, self.name.as_bytes())
    }
}

/// What is told of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct About {
    directory: bool,
    size: u64,
    /// Seconds since 1970.
    modified: i64,
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
    write_keeping(KEPT_BYTES, request, directory, give)
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
    let mut last: Option<Ranked> = None;
    let mut first = true;
    loop {
        let (names, whole) = next(kept, request, &directory, last.as_ref())?;
        for ranked in &names {
            // What is gone meanwhile is not there.
            let Some(about) = look(&directory, &ranked.name) else { continue };
            row(request, ranked.name.as_bytes(), about, first, &mut text);
            first = false;
            if text.len() >= BLOCK_BYTES {
                give(&mut text, false)?;
            }
        }
        if whole {
            break;
        }
        last = names.into_iter().next_back();
    }
    text.push_str(if request.json { "\n]\n" } else { "</table>\n" });
    give(&mut text, true)
}

/// The names that come next behind `last`, in order, as many as take `kept` bytes; and whether those are all.
fn next(
    kept: usize,
    request: &Request,
    directory: impl AsFd,
    last: Option<&Ranked>,
) -> Result<(Vec<Ranked>, bool), Error> {
    let order = request.order;
    let mut names: Vec<Ranked> = Vec::new();
    let mut bytes = 0;
    // The first of those that are left to later passes.
    let mut later: Option<Ranked> = None;
    for found in Dir::read_from(&directory)? {
        let found = found?;
        let name = found.file_name();
        let hidden = !request.hidden && name.to_bytes().starts_with(b".");
        if hidden || name == c"." || name == c".." {
            continue;
        }
        let rank = match (order.key, found.file_type()) {
            (Key::Name, FileType::Directory | FileType::RegularFile | FileType::Unknown) => 0,
            (Key::Name, _) => continue,
            (key, _) => match look(&directory, name) {
                Some(about) if key == Key::Size => i64::try_from(about.size).unwrap_or(i64::MAX),
                Some(about) => about.modified,
                None => continue,
            },
        };
        let compare = |other: &Ranked| order.compare((rank, name.to_bytes()), other.key());
        if last.is_some_and(|last| compare(last).is_le())
            || later.as_ref().is_some_and(|at| compare(at).is_ge())
        {
            continue;
        }
        bytes += NAME_BYTES + name.count_bytes();
        names.push(Ranked { rank, name: name.to_owned() });
        if bytes > kept && names.len() > 1 {
            let half = names.len() / 2;
            names.select_nth_unstable_by(half, |a, b| order.compare(a.key(), b.key()));
            names.truncate(half + 1);
            later = names.pop();
            bytes = names.iter().map(|ranked| NAME_BYTES + ranked.name.count_bytes()).sum();
        }
    }
    names.sort_unstable_by(|a, b| order.compare(a.key(), b.key()));
    Ok((names, later.is_none()))
}

/// What is to be told of a file or a directory. Links are not followed, for what they lead to may be none of ours.
fn look(directory: impl AsFd, name: &CStr) -> Option<About> {
    let stat = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).ok()?;
    let directory = match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return None,
    };
    let size = if directory { 0 } else { stat.stx_size };
    Some(About { directory, size, modified: stat.stx_mtime.tv_sec })
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

fn row(request: &Request, bytes: &[u8], about: About, first: bool, text: &mut String) {
    let name = String::from_utf8_lossy(bytes);
    let slash = if about.directory { "/" } else { "" };
    if request.json {
        let comma = if first { "\n" } else { ",\n" };
        let name = serde_json::to_string(&name).expect("a text is JSON");
        let kind = if about.directory { "directory" } else { "file" };
        let (size, seconds) = (about.size, about.modified);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{comma}{{\"name\":{name},\"type\":\"{kind}\",\"size\":{size},\"modified\":{seconds}}}"
        );
    } else {
        let link = percent_encode(bytes, ESCAPED);
        let (name, size) = (escape(&name), about.size);
        let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(about.modified).unwrap_or(0));
        let modified = httpdate::fmt_http_date(modified);
        let _ = if about.directory {
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
        write_keeping(kept * (NAME_BYTES + 3), &request, directory, |block| {
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
