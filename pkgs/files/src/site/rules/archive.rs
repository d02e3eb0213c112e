//! What rules say of archives of directories.

use serde::{Deserialize, Serialize};

/// The most entries of an archive where nothing else is said.
pub const ENTRIES: u32 = 10_000;

/// The most that may be said: each entry is some 200 bytes of memory, until its client has all of the archive.
pub const MOST_ENTRIES: u32 = 100_000;

/// The most bytes of files in an archive where nothing else is said.
pub const BYTES: u64 = 4 << 30;

/// A kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum ArchiveFormat {
    /// ZIP (APPNOTE.TXT), texts deflated.
    #[serde(rename = "zip")]
    Zip,
    /// tar (GNU's), compressed by Zstandard (RFC 8878).
    #[serde(rename = "tar.zst")]
    TarZst,
}

impl ArchiveFormat {
    const ALL: [Self; 2] = [Self::Zip, Self::TarZst];

    /// As rules and queries name it, and as its files end.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::TarZst => "tar.zst",
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Zip => "application/zip",
            Self::TarZst => "application/zstd",
        }
    }
}

/// Which archives of a directory may be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePolicy {
    /// Of which kinds; of none where there are none to be had.
    pub formats: Vec<ArchiveFormat>,
    /// Of how many entries, files and directories.
    pub max_entries: u32,
    /// With files of how many bytes together.
    pub max_bytes: u64,
}

impl Default for ArchivePolicy {
    fn default() -> Self {
        Self { formats: Vec::new(), max_entries: ENTRIES, max_bytes: BYTES }
    }
}

impl ArchivePolicy {
    /// The kind that a query asks for by `archive=…`: none where it asks for no archive, or no kind may be had here; an
    /// error where it asks for another, or for something else besides.
    pub fn asked(&self, query: &str) -> Option<Result<ArchiveFormat, UnknownArchive>> {
        let parameters = || query.split('&').filter(|parameter| !parameter.is_empty());
        let name = parameters().find_map(|parameter| parameter.strip_prefix("archive="))?;
        if self.formats.is_empty() {
            return None;
        }
        let format = ArchiveFormat::ALL.into_iter().find(|format| format.name() == name);
        let format = format.filter(|format| self.formats.contains(format) && parameters().count() == 1);
        Some(format.ok_or(UnknownArchive))
    }
}

/// A query that asks for no archive that may be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownArchive;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_asked_for_by_name_where_it_may_be_had() {
        let zip = ArchivePolicy { formats: vec![ArchiveFormat::Zip], ..ArchivePolicy::default() };
        for (query, asked) in [
            ("", None),
            ("sort=name", None),
            ("archive", None),
            ("archive=zip", Some(Ok(ArchiveFormat::Zip))),
            ("&archive=zip&", Some(Ok(ArchiveFormat::Zip))),
            ("archive=tar.zst", Some(Err(UnknownArchive))),
            ("archive=rar", Some(Err(UnknownArchive))),
            ("archive=zip&sort=name", Some(Err(UnknownArchive))),
            ("archive=zip&archive=zip", Some(Err(UnknownArchive))),
        ] {
            assert_eq!(zip.asked(query), asked, "{query}");
            assert_eq!(ArchivePolicy::default().asked(query), None, "{query}");
        }
    }
}
