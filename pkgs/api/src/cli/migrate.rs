//! `linerate-api migrate`: brings the schema up to date, which `serve` does as well.

use clap::Args;

use crate::store::Error;
use crate::users::Users;

use super::database::DatabaseArgs;

/// Bring the schema of the database up to date; creates an SQLite database where there is none.
#[derive(Args, Clone, Debug)]
pub struct Migrate {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl Migrate {
    /// Runs the command.
    ///
    /// # Errors
    /// When the database cannot be opened, reached or migrated.
    pub async fn run(self) -> Result<(), Error> {
        Users::open(&self.database.options()).await?;
        println!("{} is up to date", self.database.database_url);
        Ok(())
    }
}
