//! Requests to S3: their content, their timeouts, and which answers are accepted.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::HeaderValue;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, GetOptions, GetRange, GetResult, GetResultPayload,
    ObjectStore, RetryConfig,
};
use tokio::time::timeout;
use url::Url;

use crate::BLOCK_BYTES;
use crate::credentials::FileCredentials;
use crate::error::Error;
use crate::metadata::{MAX_KEY_BYTES, Metadata};
use crate::settings::{Settings, StartError};

/// How often a request is tried again after a failure of the server or the connection.
const RETRIES: usize = 2;

/// How long to wait before the first retry. Each further retry waits twice as long.
const BACKOFF: Duration = Duration::from_millis(50);

/// How many connections are kept for later requests.
const IDLE_CONNECTIONS: usize = 64;

/// How many characters of an error are kept.
const MAX_ERROR_CHARS: usize = 300;

/// The origin.
#[derive(Clone)]
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    head_timeout: Duration,
    block_timeout: Duration,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// The result of a conditional request for a key.
#[derive(Debug)]
pub enum Conditional {
    /// The known version is current.
    NotModified,
    /// This version, and its first block if requested.
    Found(Metadata, Option<Part>),
}

/// Bytes of an object that are still arriving.
pub struct Part {
    range: Range<u64>,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Remote {
    /// A client for the bucket.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(settings: &Settings) -> Result<Self, StartError> {
        if let Some(endpoint) = &settings.endpoint {
            check(endpoint, settings.allow_http)?;
        }
        let file = |path: &std::path::Path| {
            let path = path.to_owned();
            |source| StartError::File { path, source }
        };
        let mut options = ClientOptions::new()
            .with_user_agent(HeaderValue::from_static(concat!("linerate/", env!("CARGO_PKG_VERSION"))))
            .with_allow_http(settings.allow_http)
            .with_connect_timeout(settings.connect_timeout)
            .with_read_timeout(settings.head_timeout)
            .with_timeout(settings.block_timeout)
            .with_pool_max_idle_per_host(IDLE_CONNECTIONS);
        if let Some(path) = &settings.authorities {
            let pem = fs::read(path).map_err(file(path))?;
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|error| StartError::Client(told(&error)))?;
            for certificate in certificates {
                options = options.with_root_certificate(certificate);
            }
        }
        // Takes credentials from the environment, as AWS's own tools read them, or else from the machine (ECS, IMDSv2).
        let environment = AmazonS3Builder::from_env();
        let region = settings
            .region
            .clone()
            .or_else(|| environment.get_config_value(&AmazonS3ConfigKey::Region))
            .unwrap_or_else(|| "us-east-1".to_owned());
        let mut builder = environment
            .with_client_options(options)
            .with_bucket_name(&settings.bucket.name)
            .with_region(region)
            .with_allow_http(settings.allow_http)
            .with_skip_signature(settings.anonymous)
            .with_retry(RetryConfig {
                backoff: BackoffConfig { init_backoff: BACKOFF, ..BackoffConfig::default() },
                max_retries: RETRIES,
                retry_timeout: settings.block_timeout,
            });
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(path) = &settings.credentials {
            builder = builder.with_credentials(Arc::new(FileCredentials::load(path).map_err(file(path))?));
        }
        let store = builder.build().map_err(|error| StartError::Client(told(&error)))?;
        Ok(Self::of(settings, Arc::new(store)))
    }

    /// The same with another store.
    pub(crate) fn of(settings: &Settings, store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            prefix: settings.bucket.prefix.clone(),
            head_timeout: settings.head_timeout,
            block_timeout: settings.block_timeout,
        }
    }

    /// The object for a key, unless it is the version with this ETag. With `bytes`, its first block comes too.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn get_unless(
        &self,
        key: &str,
        known: Option<&str>,
        bytes: bool,
    ) -> Result<Conditional, Error> {
        let path = self.path(key)?;
        let options = |range: Option<GetRange>| GetOptions {
            if_none_match: known.map(str::to_owned),
            head: range.is_none(),
            range,
            ..GetOptions::default()
        };
        let first = bytes.then_some(GetRange::Bounded(0..BLOCK_BYTES));
        let failed = match self.get(&path, options(first.clone())).await {
            Ok(result) => return Self::found(key, result, bytes),
            Err(object_store::Error::NotModified { .. }) => return Ok(Conditional::NotModified),
            Err(error) => error,
        };
        // An empty object has no first byte, so the request for it is an error of its own (416). Only a HEAD tells it
        // apart from other errors.
        let error = Error::from(failed);
        if !bytes || !matches!(error, Error::Failed(_)) {
            return Err(error);
        }
        match self.get(&path, options(None)).await {
            Ok(result) if result.meta.size == 0 => Self::found(key, result, false),
            Err(object_store::Error::NotModified { .. }) => Ok(Conditional::NotModified),
            _ => Err(error),
        }
    }

    fn found(key: &str, result: GetResult, bytes: bool) -> Result<Conditional, Error> {
        let metadata = Metadata::of(key, &result.meta, &result.attributes)?;
        let part = if bytes { Some(Part::of(result)?) } else { None };
        Ok(Conditional::Found(metadata, part))
    }

    /// Bytes of this version of an object.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Changed`] if there is another version, or none.
    pub async fn part(&self, metadata: &Metadata, range: Range<u64>) -> Result<Part, Error> {
        let options = GetOptions {
            if_match: Some(metadata.etag.clone()),
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let result = match self.get(&self.path(&metadata.key)?, options).await {
            Err(object_store::Error::NotFound { .. }) => return Err(Error::Changed),
            result => result?,
        };
        // A server that doesn't know If-Match answers with the version that it has.
        if result.meta.e_tag.as_deref() != Some(&metadata.etag) || result.meta.size != metadata.size {
            return Err(Error::Changed);
        }
        if result.range != range {
            return Err(Error::Answer("it has other bytes than were asked for".to_owned()));
        }
        Part::of(result)
    }

    async fn get(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        match timeout(self.head_timeout, self.store.get_opts(path, options)).await {
            Ok(result) => result,
            Err(elapsed) => Err(object_store::Error::Generic { store: "S3", source: Box::new(elapsed) }),
        }
    }

    fn path(&self, key: &str) -> Result<Path, Error> {
        if self.prefix.len() + key.len() > MAX_KEY_BYTES {
            return Err(Error::Missing);
        }
        Path::parse(format!("{}{key}", self.prefix)).map_err(|_| Error::Missing)
    }

    /// How long a block may take.
    pub fn block_timeout(&self) -> Duration {
        self.block_timeout
    }
}

impl Part {
    fn of(result: GetResult) -> Result<Self, Error> {
        let range = result.range.clone();
        match result.payload {
            GetResultPayload::Stream(stream) => Ok(Self { range, stream }),
            #[allow(unreachable_patterns)]
            _ => Err(Error::Answer("it has no body".to_owned())),
        }
    }

    /// The range of these bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Reads all bytes.
    ///
    /// # Errors
    /// [`Error::Answer`] if there are more or fewer than the head said.
    pub async fn read(mut self) -> Result<Bytes, Error> {
        let length = usize::try_from(self.range.end - self.range.start)
            .ok()
            .filter(|length| *length as u64 <= BLOCK_BYTES)
            .ok_or_else(|| Error::Answer("it is longer than a block".to_owned()))?;
        let mut bytes = BytesMut::with_capacity(length);
        while let Some(piece) = self.stream.next().await {
            let piece = piece?;
            if bytes.len() + piece.len() > length {
                return Err(Error::Answer("it has more bytes than its head says".to_owned()));
            }
            bytes.extend_from_slice(&piece);
        }
        if bytes.len() < length {
            return Err(Error::Answer("it has fewer bytes than its head says".to_owned()));
        }
        Ok(bytes.freeze())
    }
}

/// Whether an endpoint can be used.
fn check(endpoint: &str, allow_http: bool) -> Result<(), StartError> {
    let wrong = || StartError::Endpoint(endpoint.to_owned());
    let url = Url::parse(endpoint).map_err(|_| wrong())?;
    let is_bare = url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none();
    match url.scheme() {
        _ if !is_bare => Err(wrong()),
        "https" => Ok(()),
        "http" if allow_http => Ok(()),
        "http" => Err(StartError::PlainHttp(endpoint.to_owned())),
        _ => Err(wrong()),
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        let text = told(&error);
        match error {
            // If the bucket is missing, nothing is known about an object.
            object_store::Error::NotFound { .. } if text.contains("NoSuchBucket") => Self::Failed(text),
            object_store::Error::NotFound { .. } => Self::Missing,
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Denied
            }
            object_store::Error::Precondition { .. } => Self::Changed,
            object_store::Error::Generic { source, .. } if source.is::<tokio::time::error::Elapsed>() => {
                Self::TimedOut
            }
            _ => Self::Failed(text),
        }
    }
}

/// An error and its causes as one line.
fn told(error: &dyn std::error::Error) -> String {
    let line = service::exit::chain(error);
    line.chars().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_https_unless_said_otherwise() {
        for (endpoint, allow_http, fits) in [
            ("https://s3.example.org", false, true),
            ("https://s3.example.org:9000/", false, true),
            ("http://127.0.0.1:7070", false, false),
            ("http://127.0.0.1:7070", true, true),
            ("https://user:secret@s3.example.org", true, false),
            ("https://s3.example.org/path", true, false),
            ("https://s3.example.org?x=y", true, false),
            ("ftp://s3.example.org", true, false),
            ("s3.example.org", true, false),
        ] {
            assert_eq!(check(endpoint, allow_http).is_ok(), fits, "{endpoint} {allow_http}");
        }
    }

    #[test]
    fn a_body_has_as_many_bytes_as_its_head_says() {
        let part = |length: u64, pieces: &[&'static [u8]]| Part {
            range: 0..length,
            stream: futures_util::stream::iter(
                pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect::<Vec<_>>(),
            )
            .boxed(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for (length, pieces, fits) in [
            (4, &[&b"ab"[..], b"cd"][..], true),
            (0, &[], true),
            (5, &[b"abcd"], false),
            (3, &[b"ab", b"cd"], false),
            (BLOCK_BYTES + 1, &[b"ab"], false),
        ] {
            let read = runtime.block_on(part(length, pieces).read());
            assert_eq!(read.is_ok(), fits, "{length} {pieces:?}");
        }
    }
}
