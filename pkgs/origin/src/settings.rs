//! The origin's address, and all limits.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A bucket and the prefix of the served keys in it: `s3://bucket/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The start of all keys: empty, or with a slash at its end.
    pub prefix: String,
}

/// Why a text doesn't name a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// It has another scheme, or none.
    #[error("an origin is s3://BUCKET or s3://BUCKET/PREFIX")]
    Scheme,
    /// S3 doesn't allow this name for a bucket.
    #[error("{0:?} is no name of a bucket: 3 to 63 of a-z, 0-9, - and .")]
    Name(String),
    /// The prefix couldn't be the path of a file.
    #[error("{0:?} is no prefix: segments are not empty, and not . or ..")]
    Prefix(String),
}

impl FromStr for Bucket {
    type Err = BucketError;

    fn from_str(text: &str) -> Result<Self, BucketError> {
        let rest = text.strip_prefix("s3://").ok_or(BucketError::Scheme)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if !(3..=63).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(BucketError::Name(name.to_owned()));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_segment = |segment: &str| {
            !matches!(segment, "" | "." | "..") && !segment.contains(|at: char| at.is_ascii_control())
        };
        if !prefix.is_empty() && !prefix.split('/').all(is_segment) {
            return Err(BucketError::Prefix(prefix.to_owned()));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { name: name.to_owned(), prefix })
    }
}

/// The origin's address, and all limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bucket.
    pub bucket: Bucket,
    /// S3's endpoint; none for Amazon's, depending on the region.
    pub endpoint: Option<String>,
    /// Whether the endpoint may be `http://`.
    pub allow_http: bool,
    /// Certificates of authorities, in PEM, in addition to the system's.
    pub authorities: Option<PathBuf>,
    /// The region; none for the environment's, or `us-east-1` if that has none.
    pub region: Option<String>,
    /// A file with credentials in the format of `~/.aws/credentials`. None for those of the environment or the machine.
    pub credentials: Option<PathBuf>,
    /// Whether requests are not signed, for a bucket that anybody may read.
    pub anonymous: bool,
    /// The cache directory. It is created if it is missing.
    pub directory: PathBuf,
    /// The most bytes in it.
    pub capacity: u64,
    /// The most objects in it.
    pub objects: usize,
    /// How long an object counts as current.
    pub ttl: Duration,
    /// How long an object counts as missing.
    pub missing_ttl: Duration,
    /// How long after its last check an object is served while the origin fails.
    pub stale: Duration,
    /// Memory for blocks that are being fetched, in bytes.
    pub memory: u64,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long the head of an answer may take, including retries and waiting.
    pub head_timeout: Duration,
    /// How long a block may take, including its head.
    pub block_timeout: Duration,
}

/// Why an origin can't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The endpoint is plain HTTP, which isn't allowed.
    #[error("the endpoint {0} is not https://: whoever listens reads and changes what is served")]
    PlainHttp(String),
    /// The endpoint isn't the URL of a host.
    #[error("the endpoint {0:?} is no http:// or https:// URL of a host without a path")]
    Endpoint(String),
    /// A file can't be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The S3 client can't be made with these settings.
    #[error("the origin cannot be used: {0}")]
    Client(String),
    /// The capacity is less than the cache needs to work.
    #[error("the cache needs room for at least {0} bytes")]
    Capacity(u64),
    /// Threads can't be started.
    #[error("no threads for the origin: {0}")]
    Threads(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_by_a_url_with_or_without_a_prefix() {
        let bucket =
            |name: &str, prefix: &str| Ok(Bucket { name: name.to_owned(), prefix: prefix.to_owned() });
        for (text, expected) in [
            ("s3://site", bucket("site", "")),
            ("s3://site/", bucket("site", "")),
            ("s3://my.site-1/a/b", bucket("my.site-1", "a/b/")),
            ("s3://site/a/", bucket("site", "a/")),
            ("https://site/a", Err(BucketError::Scheme)),
            ("site", Err(BucketError::Scheme)),
            ("s3://", Err(BucketError::Name(String::new()))),
            ("s3://Site", Err(BucketError::Name("Site".to_owned()))),
            ("s3://key:secret@site", Err(BucketError::Name("key:secret@site".to_owned()))),
            ("s3://site//a", Err(BucketError::Prefix("/a".to_owned()))),
            ("s3://site/a/../b", Err(BucketError::Prefix("a/../b".to_owned()))),
            ("s3://site/a\nb", Err(BucketError::Prefix("a\nb".to_owned()))),
        ] {
            assert_eq!(text.parse::<Bucket>(), expected, "{text}");
        }
    }
}
