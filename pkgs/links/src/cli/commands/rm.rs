//! `rm`: deletes links.

use serde::Serialize;

use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output};

/// Arguments of `rm`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which links.
    #[arg(required = true, value_name = "CODE")]
    pub codes: Vec<String>,

    /// Their domain; the default one if absent or "default".
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// Where.
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// The result for the links.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    deleted: Vec<String>,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Failed {
    code: String,
    error: String,
}

/// Deletes links with their clicks. Each succeeds or fails separately.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    let backend = args.backend.open(&PolicyArgs::default(), IfMissing::Refuse)?;
    let total = args.codes.len() as u64;
    let mut outcome = Outcome::default();
    for code in args.codes {
        match backend.delete(args.domain.as_deref(), &code) {
            Ok(()) => outcome.deleted.push(code),
            // If only one link was named, its error is the command's error.
            Err(error) if total == 1 => return Err(error),
            Err(error) => outcome.failed.push(Failed { code, error: error.to_string() }),
        }
    }
    output.show(&outcome, |outcome, output| {
        for code in &outcome.deleted {
            output.line(format_args!("deleted {code}"))?;
        }
        for Failed { code, error } in &outcome.failed {
            output.line(format_args!("kept {code:?}: {error}"))?;
        }
        Ok(())
    })?;
    match outcome.failed.len() as u64 {
        0 => Ok(()),
        failed => Err(Error::Some { failed, total }),
    }
}
