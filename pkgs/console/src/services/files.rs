//! A client for linerate-files' admin listener, and for the service that writes files.

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use url::form_urlencoded::{byte_serialize, parse};

use crate::upstream::{Answer, Ask, Error, Upstream};

/// A path as in URLs: plain characters and escapes, starting with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlPath(String);

impl UrlPath {
    /// Checks that a path is well-formed. The services decide whether it exists.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~%*".contains(&byte);
        (text.starts_with('/') && text.len() <= 4096 && text.bytes().all(plain))
            .then(|| Self(text.to_owned()))
    }

    /// The path that a user typed: names with slashes between them.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let names: Vec<String> = text.split('/').map(escape).collect();
        Self::new(&names.join("/"))
    }

    /// The path of a name in this directory.
    pub(crate) fn below(&self, name: &str) -> Option<Self> {
        Self::new(&format!("{}/{}", self.0.trim_end_matches('/'), escape(name)))
    }

    /// The directory that contains it, with a final slash. The root contains itself.
    pub(crate) fn directory(&self) -> Self {
        let rest = self.0.trim_end_matches('/');
        Self(rest[..rest.rfind('/').map_or(0, |at| at + 1)].to_owned()).or_root()
    }

    fn or_root(self) -> Self {
        if self.0.is_empty() { Self("/".into()) } else { self }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.0.ends_with('/')
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for display. Bytes that aren't text are lost.
    pub(crate) fn shown(&self) -> String {
        shown(&self.0)
    }

    /// The directories above it and the path itself, each with its name and path.
    pub(crate) fn trail(&self) -> Vec<(String, String)> {
        let ends = self.0.match_indices('/').map(|(at, _)| at + 1).filter(|end| *end > 1);
        let ends = ends.chain((!self.is_directory()).then_some(self.0.len()));
        let mut from = 1;
        ends.map(|end| {
            let name = shown(self.0[from..end].trim_end_matches('/'));
            from = end;
            (name, self.0[..end].to_owned())
        })
        .collect()
    }
}

/// Escapes a name for URLs. A plus sign stays one and doesn't become a space.
fn escape(name: &str) -> String {
    byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

fn shown(escaped: &str) -> String {
    let field = format!("={escaped}");
    parse(field.as_bytes()).next().map_or_else(String::new, |(_, text)| text.into_owned())
}

/// A page of a directory.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Directory {
    pub(crate) entries: Vec<Entry>,
    pub(crate) next: Option<String>,
    pub(crate) rules: Vec<Map<String, Value>>,
}

/// How much of a file is in memory.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    pub(crate) page_cache: bool,
    pub(crate) pipe: bool,
    pub(crate) tls: bool,
}

/// An entry of a directory.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) kind: String,
    pub(crate) link: bool,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<i64>,
    pub(crate) media_type: Option<String>,
    pub(crate) codings: Vec<String>,
    pub(crate) kept: Kept,
    pub(crate) rules: Vec<usize>,
    pub(crate) why: Option<String>,
}

/// The response that linerate-files would send for a path.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) sent: Option<String>,
    pub(crate) bytes: Option<u64>,
    pub(crate) compressed: bool,
    pub(crate) kept: Kept,
    pub(crate) rules: Vec<Map<String, Value>>,
    pub(crate) rules_of_sent: Vec<Map<String, Value>>,
}

/// What the writer reports about itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Room {
    pub(crate) uploads: Vec<UnderWay>,
    pub(crate) used: Used,
    pub(crate) most: Most,
}

/// The space that is in use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Used {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// The limits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Most {
    pub(crate) file_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// A running upload.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UnderWay {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) length: u64,
    pub(crate) offset: u64,
    pub(crate) by: String,
}

/// The entries of a directory below the root, from the page after `after`.
pub(crate) async fn browse(files: &Upstream, path: &UrlPath, after: &str) -> Result<Directory, Error> {
    let after = UrlPath::new(&format!("/{after}")).map_or_else(String::new, |after| after.0[1..].to_owned());
    json(files, &format!("/browse?path={}&after={after}", path.0)).await
}

/// The response that linerate-files would send for a path.
pub(crate) async fn answer(files: &Upstream, path: &UrlPath) -> Result<Told, Error> {
    json(files, &format!("/answer?path={}", path.0)).await
}

/// The writer's limits and usage, and its running uploads.
pub(crate) async fn room(writer: &Upstream) -> Result<Room, Error> {
    json(writer, "/uploads").await
}

async fn json<T: DeserializeOwned>(upstream: &Upstream, path: &str) -> Result<T, Error> {
    let answer = upstream.ask_well(Ask::get(path)).await?;
    serde_json::from_slice(&answer.body)
        .map_err(|error| Error::Strange { name: upstream.name, why: error.to_string() })
}

/// A change below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Rename { from: UrlPath, to: UrlPath, replace: bool },
    Delete(UrlPath),
    Directory(UrlPath),
}

/// Makes a change below the root on behalf of a user.
pub(crate) async fn change(writer: &Upstream, change: &Change, by: &str) -> Result<(), Error> {
    let (path, body) = match change {
        Change::Rename { from, to, replace } => {
            ("/rename", json!({ "from": from.0, "to": to.0, "replace": replace }))
        }
        Change::Delete(path) => ("/delete", json!({ "path": path.0 })),
        Change::Directory(path) => ("/directory", json!({ "path": path.0 })),
    };
    let fields = [("linerate-by", by)];
    let body = Some(("application/json", body.to_string().into_bytes()));
    writer
        .ask_well(Ask { method: Method::POST, path, fields: &fields, body, ..Ask::default() })
        .await
        .map(drop)
}

/// Sends an upload request in the tus protocol (tus.io) on behalf of a user.
pub(crate) async fn upload(
    writer: &Upstream,
    (method, path): (Method, &str),
    fields: &[(&'static str, &str)],
    body: Vec<u8>,
    by: &str,
) -> Result<Answer, Error> {
    let all: Vec<_> =
        fields.iter().copied().chain([("tus-resumable", "1.0.0"), ("linerate-by", by)]).collect();
    let body = (method == Method::PATCH).then_some(("application/offset+octet-stream", body));
    writer.ask(Ask { method, path, fields: &all, body, ..Ask::default() }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_once_and_shown_as_text() {
        for (text, escaped) in [
            ("/a b+c.txt", "/a%20b%2Bc.txt"),
            ("/<script>/של", "/%3Cscript%3E/%D7%A9%D7%9C"),
            ("/100%&x=y?#", "/100%25%26x%3Dy%3F%23"),
        ] {
            let path = UrlPath::of_text(text).expect("a path");
            assert_eq!((path.as_str(), &*path.shown()), (escaped, text));
        }
        for odd in ["", "a", "/a b", "/a?b", "/a&after=b", "/a\n", "/\u{e9}"] {
            assert_eq!(UrlPath::new(odd), None, "{odd}");
        }
        let path = UrlPath::new("/a/b%20c/d").expect("a path");
        assert_eq!(path.directory().as_str(), "/a/b%20c/");
        assert_eq!(path.directory().directory().as_str(), "/a/");
        assert_eq!(UrlPath::new("/").expect("a path").directory().as_str(), "/");
        let trail = path.trail();
        let expected = [("a", "/a/"), ("b c", "/a/b%20c/"), ("d", "/a/b%20c/d")];
        assert_eq!(trail, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
        assert!(UrlPath::new("/").expect("a path").trail().is_empty());
    }
}
