//! What is known about an object without its bytes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use object_store::{Attribute, Attributes, ObjectMeta};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The longest key of S3, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The longest ETag, and the longest header that is passed on, in bytes, since both are kept in memory.
const MAX_FIELD_BYTES: usize = 1024;

/// The origin's headers for an object that are passed on to clients. Its media type is a separate field.
const PASSED_ON: [(&str, Attribute); 4] = [
    ("cache-control", Attribute::CacheControl),
    ("content-disposition", Attribute::ContentDisposition),
    ("content-encoding", Attribute::ContentEncoding),
    ("content-language", Attribute::ContentLanguage),
];

/// S3's type for an object that was stored without one.
const NO_TYPE: &str = "binary/octet-stream";

/// What is known about one version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The key below the prefix.
    pub key: String,
    /// A strong ETag, with its quotes.
    pub etag: String,
    /// In bytes.
    pub size: u64,
    /// When it last changed, in seconds since 1970.
    pub modified: i64,
    /// Its media type, if it was stored with one.
    pub kind: Option<String>,
    /// Further headers for clients: names in lower case, and values of visible characters.
    pub fields: Vec<(String, String)>,
}

impl Metadata {
    /// What the origin says about a key.
    ///
    /// # Errors
    /// [`Error::Answer`] without a strong ETag. Only a strong ETag tells parts of different versions apart.
    pub fn of(key: &str, meta: &ObjectMeta, attributes: &Attributes) -> Result<Self, Error> {
        let etag = meta.e_tag.as_deref().unwrap_or_default();
        if !is_strong(etag) {
            return Err(Error::Answer("it has no strong ETag".to_owned()));
        }
        let value = |attribute| -> Option<&str> {
            let value: &str = attributes.get(&attribute)?.as_ref();
            is_value(value).then_some(value)
        };
        let fields = PASSED_ON
            .into_iter()
            .filter_map(|(name, attribute)| Some((name.to_owned(), value(attribute)?.to_owned())));
        Ok(Self {
            key: key.to_owned(),
            etag: etag.to_owned(),
            size: meta.size,
            modified: meta.last_modified.timestamp(),
            kind: value(Attribute::ContentType).filter(|kind| *kind != NO_TYPE).map(str::to_owned),
            fields: fields.collect(),
        })
    }

    /// When it last changed.
    pub fn modified(&self) -> SystemTime {
        let seconds = u64::try_from(self.modified).unwrap_or(0);
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
    }

    /// The name of its files in the cache, from the bucket, the key and this version.
    pub fn name(&self, bucket: &str) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [bucket, &self.key, &self.etag, &self.size.to_string()] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        HEXLOWER.encode(context.finish().as_ref())
    }
}

/// Whether this is a strong entity tag (RFC 9110, section 8.8.3).
fn is_strong(etag: &str) -> bool {
    let inner = etag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let fits = |byte: u8| byte == 0x21 || (0x23..=0x7e).contains(&byte);
    inner.is_some_and(|inner| etag.len() <= MAX_FIELD_BYTES && inner.bytes().all(fits))
}

/// Whether this can be sent unchanged as a header's value: nothing in it ends a line.
fn is_value(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= MAX_FIELD_BYTES
        && value.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && value.trim() == value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(etag: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            location: "a".into(),
            last_modified: "2026-01-02T03:04:05Z".parse().expect("a time"),
            size: 7,
            e_tag: etag.map(str::to_owned),
            version: None,
        }
    }

    #[test]
    fn only_a_strong_etag_tells_versions_apart() {
        for (etag, fits) in [
            (Some("\"abc-2\""), true),
            (Some("\"\""), true),
            (Some("W/\"abc\""), false),
            (Some("abc"), false),
            (Some("\"a\"b\""), false),
            (Some("\"a\r\nb\""), false),
            (Some("\""), false),
            (None, false),
        ] {
            let made = Metadata::of("a", &meta(etag), &Attributes::new());
            assert_eq!(made.is_ok(), fits, "{etag:?}");
        }
    }

    #[test]
    fn what_would_end_a_line_is_not_passed_on() {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, "text/html\r\nset-cookie: a=b".into());
        attributes.insert(Attribute::CacheControl, "max-age=60".into());
        attributes.insert(Attribute::ContentLanguage, "".into());
        let made = Metadata::of("a", &meta(Some("\"e\"")), &attributes).expect("an ETag");
        assert_eq!(made.kind, None);
        assert_eq!(made.fields, [("cache-control".to_owned(), "max-age=60".to_owned())]);
        assert_eq!(made.modified, 1_767_323_045);
    }

    #[test]
    fn names_differ_with_bucket_key_version_and_size() {
        let one = Metadata::of("a", &meta(Some("\"e\"")), &Attributes::new()).expect("an ETag");
        let mut names = vec![one.name("b"), one.name("c")];
        names.push(Metadata { key: "b".to_owned(), ..one.clone() }.name("b"));
        names.push(Metadata { etag: "\"f\"".to_owned(), ..one.clone() }.name("b"));
        names.push(Metadata { size: 8, ..one.clone() }.name("b"));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5);
        assert!(names.iter().all(|name| name.len() == 64));
    }
}
