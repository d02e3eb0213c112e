//! The headers of resumable uploads (tus.io, version 1.0.0: core, creation, checksum, expiration, termination).

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;

/// The supported version.
pub(super) const VERSION: &str = "1.0.0";

/// The supported extensions.
pub(super) const EXTENSIONS: &str = "creation,checksum,expiration,termination";

/// The supported checksums of a piece; the protocol requires the first.
pub(super) const ALGORITHMS: &str = "sha1,sha256";

/// The protocol's own status for a piece that doesn't match its checksum.
pub(super) const CHECKSUM_MISMATCH: u16 = 460;

/// The metadata that a client sends when it begins an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Its target path, escaped.
    pub(super) path: String,
    /// The SHA-256 of the whole file, in hexadecimal digits.
    pub(super) sha256: Option<String>,
    /// Whether it may replace an existing file.
    pub(super) replace: bool,
}

impl Metadata {
    /// Parses `Upload-Metadata`: keys, each with a value in base64. Returns none if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut metadata = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            let value = String::from_utf8(BASE64_STANDARD.decode(value.trim()).ok()?).ok()?;
            match key {
                "path" => metadata.path = value,
                "sha256" => {
                    let is_sum = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
                    metadata.sha256 = Some(value.to_ascii_lowercase()).filter(|_| is_sum);
                    metadata.sha256.as_ref()?;
                }
                "replace" => metadata.replace = value != "false",
                // Clients also send other keys, such as the file's name on their disk and its media type.
                _ => {}
            }
        }
        Some(metadata)
    }
}

/// The expected checksum of a piece.
pub(super) struct Checksum {
    context: Context,
    expected: Vec<u8>,
}

/// Why a piece's checksum can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Upload-Checksum is one of {ALGORITHMS}, a space and the sum in base64")]
pub(super) struct ChecksumError;

impl Checksum {
    /// Reads `Upload-Checksum`, if the header is present.
    pub(super) fn of(fields: &HeaderMap) -> Result<Option<Self>, ChecksumError> {
        let Some(value) = fields.get("upload-checksum") else { return Ok(None) };
        let (algorithm, sum) =
            value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(ChecksumError)?;
        let algorithm = match algorithm {
            "sha1" => &SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => &SHA256,
            _ => return Err(ChecksumError),
        };
        let expected = BASE64_STANDARD.decode(sum.trim()).map_err(|_| ChecksumError)?;
        Ok(Some(Self { context: Context::new(algorithm), expected }))
    }

    /// Adds more of the piece.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// Whether the piece matches.
    pub(super) fn holds(self) -> bool {
        self.context.finish().as_ref() == self.expected
    }
}

/// The number in a header. Returns none if it isn't one.
pub(super) fn number(fields: &HeaderMap, name: &str) -> Option<u64> {
    let text = fields.get(name)?.to_str().ok()?;
    // Only digits: parsing would also accept a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_as_the_protocol_has_it() {
        let of = |path: &str, replace| Some(Metadata { path: path.into(), sha256: None, replace });
        for (text, expected) in [
            ("path L2E=", of("/a", false)),
            ("filename eA==,path L2E=, replace", of("/a", true)),
            ("path L2E=,replace ZmFsc2U=", of("/a", false)),
            ("", of("", false)),
            ("path !", None),
            ("path /w==", None),
            ("sha256 YWJj", None),
        ] {
            assert_eq!(Metadata::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_piece_is_checked_by_either_sum() {
        for (value, holds) in [
            ("sha1 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=", Ok(true)),
            ("sha256 ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=", Ok(true)),
            ("sha256 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=", Ok(false)),
            ("md5 kAFQmDzST7DWlj99KOF/cg==", Err(ChecksumError)),
            ("sha1", Err(ChecksumError)),
            ("sha1 !", Err(ChecksumError)),
        ] {
            let fields = HeaderMap::from_iter([("upload-checksum".parse().unwrap(), value.parse().unwrap())]);
            let found = Checksum::of(&fields).map(|sum| {
                let mut sum = sum.expect("a sum");
                sum.update(b"a");
                sum.update(b"bc");
                sum.holds()
            });
            assert_eq!(found, holds, "{value}");
        }
    }
}
