//! Which database a command works on.

use std::num::NonZero;
use std::time::Duration;

use clap::Args;

use crate::users::{DatabaseUrl, Options};

/// Where users are kept.
#[derive(Args, Clone, Debug)]
pub struct DatabaseArgs {
    /// Where users are kept: sqlite:PATH or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "URL", env = "LINERATE_API_DATABASE_URL", default_value = "sqlite:users.db")]
    pub database_url: DatabaseUrl,
}

impl DatabaseArgs {
    /// For a command that reads nothing twice and may wait.
    pub fn options(&self) -> Options {
        Options {
            cache_bytes: 0,
            timeout: Duration::from_secs(60),
            acquire_timeout: Duration::from_secs(30),
            workers: NonZero::<usize>::MIN,
            ..Options::new(self.database_url.clone())
        }
    }
}
