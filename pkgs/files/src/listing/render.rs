//! Formats a listing as a page or as JSON.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::request::{EntryInfo, ListingRequest};
use crate::http::date;
use crate::http::listing_query::SortKey;

/// Characters of a name that need no escaping in a link (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What comes before the entries.
pub fn open(request: &ListingRequest, text: &mut String) {
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
    for (key, title) in [(SortKey::Name, "Name"), (SortKey::Size, "Size"), (SortKey::Time, "Modified")] {
        // Clicking a column again reverses its order.
        let descends = request.order.key == key && !request.order.descending;
        let order = if descends { "-" } else { "" };
        let _ = write!(text, "<th><a href=\"?sort={order}{}\">{title}</a>", key.name());
    }
    text.push('\n');
    if !request.path.is_empty() {
        text.push_str("<tr><td><a href=\"../\">../</a>\n");
    }
}

/// One entry; `first` says whether it is the first.
pub fn row(request: &ListingRequest, bytes: &[u8], about: EntryInfo, first: bool, text: &mut String) {
    let name = String::from_utf8_lossy(bytes);
    let slash = if about.directory { "/" } else { "" };
    if request.json {
        let comma = if first { "\n" } else { ",\n" };
        let name = serde_json::to_string(&name).expect("a text is JSON");
        let kind = if about.directory { "directory" } else { "file" };
        let (size, seconds) = (about.size, about.modified);
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "{comma}{{\"name\":{name},\"type\":\"{kind}\",\"size\":{size},\"modified\":{seconds}}}"
        );
    } else {
        let link = percent_encode(bytes, ESCAPED);
        let (name, size) = (escape(&name), about.size);
        let modified = date::text(date::at(about.modified));
        let _ = if about.directory {
            writeln!(text, "<tr><td><a href=\"{link}{slash}\">{name}{slash}</a><td><td>{modified}")
        } else {
            writeln!(text, "<tr><td><a href=\"{link}\">{name}</a><td>{size}<td>{modified}")
        };
    }
}

/// A text as HTML. Control characters, which HTML doesn't allow, are replaced.
fn escape(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
