//! Lines of sections, in a form that tests can compare.

use super::Section;

/// The lines of a section that `read` fills, if it is plain.
pub fn read(read: impl FnOnce(&mut Section) -> Option<()>) -> Option<Vec<(String, String)>> {
    let mut section = Section::new();
    read(&mut section)?;
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    Some(section.lines().map(|(name, value)| (text(name), text(value))).collect())
}

/// Expected lines.
pub fn lines(lines: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    Some(lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}
