//! `linerate-api seed`: fills a database with users that nobody is.

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::seed;
use crate::store::Error;
use crate::users::Users;

use super::database::DatabaseArgs;

/// Fill the database with made-up users of about 2 KB. The same numbers are the same users, and those that are
/// there are left as they are.
#[derive(Args, Clone, Debug)]
pub struct Seed {
    /// How many.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl Seed {
    /// Runs the command.
    ///
    /// # Errors
    /// When the database cannot be opened, reached or written.
    pub async fn run(self) -> Result<(), Error> {
        let users = Users::open(&self.database.options()).await?;
        // Hidden unless standard error is a terminal.
        let bar = ProgressBar::new(self.count);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} users {per_sec} {eta}") {
            bar.set_style(style);
        }
        let written = seed::seed(&users, self.count, |seen| bar.set_position(seen)).await?;
        bar.finish_and_clear();
        println!("{written} users written, {} were there", self.count - written);
        Ok(())
    }
}
