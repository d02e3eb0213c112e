//! `migrate`: copies everything to another database while this one is in use.

use indicatif::ProgressBar;
use service::settings;

use crate::cli::database::{DatabaseArgs, IfMissing, Location};
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output, progress};
use crate::store::{Migrated, MigratedTable};

/// Arguments of `migrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database to fill, named as --database names one. One that contains anything is refused. Give a URL with a
    /// password in the variable, since flags are visible to everybody on the machine.
    #[arg(long, value_name = "PATH|URL", env = "LINERATE_LINKS_TO", hide_env_values = true,
          value_parser = settings::secret::<Location>())]
    pub to: Location,

    /// Which database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// Copies everything, and prints each table's content on both sides.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    use crate::store::Error::{Differs, Field, Full, NotEmpty, ReadOnly};
    let Args { to, database } = args;
    let policy = PolicyArgs::default();
    let from = database.open(&policy, IfMissing::Refuse)?;
    let made = match &to {
        Location::File(path) if !path.exists() => Some(path.clone()),
        _ => None,
    };
    let shown = to.to_string();
    let target = DatabaseArgs { database: Some(to), config: None };
    let migrated = target.open(&policy, IfMissing::Create).and_then(|into| {
        let mut bar: Option<ProgressBar> = None;
        let migrated = from.migrate(&into, &mut |table, done, total| {
            if done == 0 {
                bar.take().inspect(ProgressBar::finish);
            }
            bar.get_or_insert_with(|| progress::rows(table, total)).set_position(done);
        });
        bar.inspect(ProgressBar::finish_and_clear);
        migrated.map_err(|source| match source {
            Differs(_) | Field { .. } | Full | NotEmpty(_) | ReadOnly => {
                Error::Database { path: shown.into(), source }
            }
            source => source.into(),
        })
    });
    if let (Err(_), Some(path)) = (&migrated, &made) {
        // There was no file before. SQLite has already removed its log.
        let _ = std::fs::remove_file(path);
    }
    let migrated = migrated?;
    output.show(&migrated, print)?;
    if !migrated.written_since.is_empty() {
        let tables: Vec<&str> = migrated.written_since.iter().map(|written| written.table).collect();
        eprintln!(
            "note: the database was written meanwhile, and that was not copied: {}. For all of it, stop what writes and \
             migrate into another empty database",
            tables.join(", ")
        );
    }
    Ok(())
}

fn print(migrated: &Migrated, output: &mut Output) -> Result<(), Error> {
    for MigratedTable { table, rows, sha256 } in &migrated.tables {
        output.line(format_args!("{table}: {rows} rows, SHA-256 {sha256}"))?;
    }
    Ok(())
}
