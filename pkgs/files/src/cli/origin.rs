//! The flags of an origin.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use origin::{Bucket, Settings};
use service::limits;

/// Files from object storage, through a disk cache.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Object storage")]
pub struct OriginArgs {
    /// Serves the objects of a bucket instead of a directory: s3://BUCKET or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "URL", requires = "origin_cache")]
    pub origin: Option<Bucket>,

    /// The S3 endpoint, an https:// URL of a host. Default: Amazon's, by region.
    #[arg(long, value_name = "URL", requires = "origin")]
    pub origin_endpoint: Option<String>,

    /// Also accepts an http:// endpoint. Anybody on the network path can then read and change objects.
    #[arg(long, requires = "origin")]
    pub origin_allow_http: bool,

    /// Authorities to trust for the endpoint in addition to the system's, in PEM.
    #[arg(long, value_name = "FILE", requires = "origin")]
    pub origin_ca: Option<PathBuf>,

    /// The region. Default: AWS_REGION, else us-east-1.
    #[arg(long, value_name = "NAME", requires = "origin")]
    pub origin_region: Option<String>,

    /// A file with aws_access_key_id and aws_secret_access_key, like ~/.aws/credentials; read again when it changes.
    /// Default: credentials from the environment, web identity, ECS or EC2 (IMDSv2).
    #[arg(long, value_name = "FILE", requires = "origin")]
    pub origin_credentials: Option<PathBuf>,

    /// Signs no requests, for a public bucket.
    #[arg(long, requires = "origin", conflicts_with = "origin_credentials")]
    pub origin_anonymous: bool,

    /// The cache's directory, for this origin only. It is created if missing.
    #[arg(long, value_name = "DIR", requires = "origin")]
    pub origin_cache: Option<PathBuf>,

    /// The most bytes in the cache.
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 30)]
    pub origin_cache_bytes: u64,

    /// The most files in the cache.
    #[arg(long, value_name = "N", default_value_t = 65_536,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub origin_cache_files: usize,

    /// How long a file is used without asking the origin, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = limits::seconds(0))]
    pub origin_ttl: u64,

    /// How long a missing file is assumed to be missing, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = limits::seconds(0))]
    pub origin_missing_ttl: u64,

    /// How long after its last check a file is still served if the origin fails, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    pub origin_stale: u64,

    /// Memory for blocks that are being fetched, in bytes; a block is one MiB.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub origin_memory: u64,

    /// Timeout of connecting to the origin, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = limits::seconds(1))]
    pub origin_connect_timeout: u64,

    /// Timeout of the head of its answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = limits::seconds(1))]
    pub origin_head_timeout: u64,

    /// Timeout of a block, including retries and its head, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = limits::seconds(1))]
    pub origin_block_timeout: u64,
}

impl OriginArgs {
    /// The origin's settings; none without an origin.
    pub fn settings(&self) -> Option<Settings> {
        let seconds = Duration::from_secs;
        Some(Settings {
            bucket: self.origin.clone()?,
            endpoint: self.origin_endpoint.clone(),
            allow_http: self.origin_allow_http,
            authorities: self.origin_ca.clone(),
            region: self.origin_region.clone(),
            credentials: self.origin_credentials.clone(),
            anonymous: self.origin_anonymous,
            directory: self.origin_cache.clone()?,
            capacity: self.origin_cache_bytes,
            objects: self.origin_cache_files,
            ttl: seconds(self.origin_ttl),
            missing_ttl: seconds(self.origin_missing_ttl),
            stale: seconds(self.origin_stale),
            memory: self.origin_memory,
            connect_timeout: seconds(self.origin_connect_timeout),
            head_timeout: seconds(self.origin_head_timeout),
            block_timeout: seconds(self.origin_block_timeout),
        })
    }
}
