//! `files-writer`: writes below the root that linerate-files serves.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use service::socket::Address;

use super::Error;
use crate::helper::serve::User;
use crate::writer::{Limits, serve};

/// Where to listen, who may connect, and how much may be written.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory to write below: the root of linerate-files. It belongs to this user.
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,

    /// Where to listen: unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR", default_value = "unix:/run/linerate-files-writer/socket")]
    pub listen: Address,

    /// The user who may connect, by name or number: the console's. The kernel identifies users (SO_PEERCRED). May be
    /// repeated.
    #[arg(long, value_name = "USER", required = true)]
    pub user: Vec<User>,

    /// The largest file, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    pub max_file: u64,

    /// The most bytes of all files below the root; uploads beyond that are refused.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 30)]
    pub max_bytes: u64,

    /// The most files and directories below the root.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub max_files: u64,

    /// The most unfinished uploads.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub max_uploads: usize,

    /// How long an abandoned upload is kept, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=30 * 86_400))]
    pub expire: u64,
}

/// Serves until the process is ended.
pub fn run(args: &Args) -> Result<(), Error> {
    if matches!(args.listen, Address::Tcp(_)) {
        return Err(Error::WriterAddress);
    }
    let limits = Limits {
        file_bytes: args.max_file,
        bytes: args.max_bytes,
        files: args.max_files,
        uploads: args.max_uploads,
        expire: Duration::from_secs(args.expire),
    };
    let users = args.user.iter().copied().collect();
    Ok(serve::serve(&args.listen, &args.root, users, limits)?)
}
