//! `import`: adds links from a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::fields::words;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output, progress};
use crate::domains::InDomains;
use crate::store::{OnConflict, Tally};
use crate::transfer::{Format, ImportOptions};

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file; - for standard input.
    pub file: PathBuf,

    /// The format, if the file's name does not tell it.
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    pub format: Option<Format>,

    /// What to do if a code is taken.
    #[arg(long, value_name = "WHAT", default_value = "fail",
          value_parser = words::<OnConflict>(["fail", "skip", "replace"]))]
    pub on_conflict: OnConflict,

    /// The domain of rows that name none; the default one if absent.
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// Where to.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Within which rules.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Imports links and prints the result. Refused rows make the command fail, but do not stop the other rows.
pub fn run(args: &Args, output: &mut Output) -> Result<(), Error> {
    let format = args.format.or_else(|| by_name(&args.file)).ok_or_else(|| unknown(&args.file))?;
    let (input, size) = open(&args.file)?;
    let bar = progress::bytes(size);
    let backend = args.backend.open(&args.policy, IfMissing::Create)?;
    let how = ImportOptions {
        on_conflict: args.on_conflict,
        domain: args.domain.clone(),
        within: InDomains::All,
        is_over: Arc::default(),
    };
    let imported = backend.import(format, &mut bar.wrap_read(input), how);
    bar.finish_and_clear();
    let tally = imported?;
    output.show(&tally, print)?;
    match tally.failed {
        0 => Ok(()),
        failed => Err(Error::Some { failed, total: failed + tally.created + tally.replaced + tally.skipped }),
    }
}

fn print(tally: &Tally, output: &mut Output) -> Result<(), Error> {
    let Tally { created, replaced, skipped, failed, errors } = tally;
    output
        .line(format_args!("{created} created, {replaced} replaced, {skipped} skipped, {failed} failed"))?;
    for (row, reason) in errors {
        output.line(format_args!("row {row}: {reason}"))?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), Error> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let failed = |source| Error::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Ok((Box::new(file), Some(size)))
}

/// The formats, as values of a flag.
pub fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["csv", "json"]).try_map(|text| text.parse::<Format>())
}

/// The format of a file, by its name.
pub fn by_name(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "csv" => Some(Format::Csv),
        "json" | "ndjson" | "jsonl" => Some(Format::Json),
        _ => None,
    }
}

/// The error for a file whose name does not tell its format.
pub fn unknown(path: &Path) -> Error {
    Error::UnknownFormat(path.display().to_string())
}
