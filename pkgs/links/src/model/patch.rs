//! Merge patches (RFC 7396).

use serde::Deserialize;

/// Distinguishes a field that is `null` (`Some(None)`) from an absent one (`None`).
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}
