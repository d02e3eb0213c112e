//! Media types by name.

use std::borrow::Cow;

/// Whether files of a media type become smaller by compression: texts, in a wide sense.
pub fn is_text(media_type: &str) -> bool {
    const TEXTS: [&str; 8] = [
        "application/javascript",
        "application/json",
        "application/manifest+json",
        "application/rtf",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/xml",
        "font/ttf",
    ];
    let name = media_type.split(';').next().unwrap_or_default().trim();
    name.starts_with("text/") || name.ends_with("+xml") || name.ends_with("+json") || TEXTS.contains(&name)
}

/// The media type of a name; texts with the charset.
pub fn media_type(path: &[u8], charset: &str) -> Cow<'static, str> {
    let name = String::from_utf8_lossy(path);
    let kind = mime_guess::from_path(&*name).first_raw().unwrap_or("application/octet-stream");
    if kind.starts_with("text/") && !charset.is_empty() {
        format!("{kind}; charset={charset}").into()
    } else {
        kind.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_charset() {
        for (path, kind) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a/b.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.png", "image/png"),
            ("a.wasm", "application/wasm"),
            ("a", "application/octet-stream"),
            ("a.tar.gz", "application/gzip"),
        ] {
            assert_eq!(media_type(path.as_bytes(), "utf-8"), kind, "{path}");
        }
        assert_eq!(media_type(b"a.html", ""), "text/html");
    }

    #[test]
    fn texts_are_compressed_and_what_is_compressed_is_not() {
        for (path, text) in [
            ("a.html", true),
            ("a.css", true),
            ("a.js", true),
            ("a.json", true),
            ("a.svg", true),
            ("a.wasm", true),
            ("a.txt", true),
            ("a.xml", true),
            ("a.webmanifest", true),
            ("a.png", false),
            ("a.jpg", false),
            ("a.woff2", false),
            ("a.zip", false),
            ("a.gz", false),
            ("a.mp4", false),
            ("a", false),
        ] {
            assert_eq!(is_text(&media_type(path.as_bytes(), "utf-8")), text, "{path}");
        }
    }
}
