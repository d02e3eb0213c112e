//! Names of archive entries.
//!
//! Names lead downwards on every system: they are UTF-8, no part is `..`, and anything that some system treats as a
//! separator or control character is escaped as in a URL. Different files have different names.

use std::fmt::Write;

/// A file's name, as it appears in an archive.
pub fn escape(name: &[u8]) -> String {
    let mut escaped = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for (at, character) in chunk.valid().char_indices() {
            let looks_escaped = || {
                let behind = &chunk.valid().as_bytes()[at + 1..];
                behind.len() >= 2 && behind[..2].iter().all(u8::is_ascii_hexdigit)
            };
            if character.is_control() || character == '\\' || (character == '%' && looks_escaped()) {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| escape_byte(byte, &mut escaped));
            } else {
                escaped.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| escape_byte(*byte, &mut escaped));
    }
    escaped
}

/// The name of a directory's archive, and of the directory that contains everything in it. It is the last part of the
/// path, which ends with a slash; `archive` for the root.
pub fn of_directory(path: &[u8]) -> String {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    match path.rsplit(|byte| *byte == b'/').next() {
        Some(name) if !name.is_empty() => escape(name),
        _ => "archive".to_owned(),
    }
}

fn escape_byte(byte: u8, escaped: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(escaped, "%{byte:02X}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_every_system_takes_for_one() {
        for (name, escaped) in [
            (&b"a b.txt"[..], "a b.txt"),
            ("häßlich.txt".as_bytes(), "häßlich.txt"),
            (b"..\\..\\x", "..%5C..%5Cx"),
            (b"a\nb\x1b[31m", "a%0Ab%1B[31m"),
            (b"\xff\xfe", "%FF%FE"),
            (b"100%", "100%"),
            (b"a%5C", "a%255C"),
            (b"a\\", "a%5C"),
            ("a\u{85}".as_bytes(), "a%C2%85"),
        ] {
            assert_eq!(escape(name), escaped);
        }
    }

    #[test]
    fn an_archive_is_called_as_its_directory() {
        for (path, name) in [(&b""[..], "archive"), (b"a/", "a"), (b"a/b c/", "b c"), (b"a/\\/", "%5C")] {
            assert_eq!(of_directory(path), name);
        }
    }
}
