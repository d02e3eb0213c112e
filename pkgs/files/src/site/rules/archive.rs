//! Rules for archives of directories.

use serde::{Deserialize, Serialize};

/// The most entries in an archive by default.
pub const ENTRIES: u32 = 10_000;

/// The highest configurable number: each entry takes about 200 bytes of memory until the client has the whole archive.
pub const MOST_ENTRIES: u32 = 100_000;

/// The most bytes of files in an archive by default.
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

    /// Its name in rules and queries, which is also its file extension.
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

/// Which archives of a directory are available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePolicy {
    /// The available formats; empty for none.
    pub formats: Vec<ArchiveFormat>,
    /// The most entries, both files and directories.
    pub max_entries: u32,
    /// The most bytes of all files together.
    pub max_bytes: u64,
}

impl Default for ArchivePolicy {
    fn default() -> Self {
        Self { formats: Vec::new(), max_entries: ENTRIES, max_bytes: BYTES }
    }
}

impl ArchivePolicy {
    /// The format that a query requests with `archive=…`. None if it requests no archive, or no format is available
    /// here. An error if it requests an unavailable format, or something else as well.
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

/// A query for an archive that isn't available.
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
