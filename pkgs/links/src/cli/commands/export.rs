//! `export`: writes all links to a file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use service::output::Closed;

use super::import::{by_name, format, unknown};
use crate::cli::api::Export;
use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output, progress};
use crate::transfer::Format;

/// The mode of an export, since it contains private targets, and secrets with `--hashes`.
const MODE: u32 = 0o600;

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file; standard output if absent or -.
    #[arg(default_value = "-", hide_default_value = true)]
    pub file: PathBuf,

    /// The format, if the file's name does not tell it [default: csv, or json with --json].
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    pub format: Option<Format>,

    /// Only links of this domain; "default" is the one without a name.
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// Include password hashes, so that an import protects the links again. Without them, links with a password are
    /// exported as disabled.
    #[arg(long)]
    pub hashes: bool,

    /// Where from.
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Writes all links. Nothing else goes to standard output.
pub fn run(args: &Args, output: &mut Output) -> Result<(), Error> {
    let fallback = if output.is_json() { Format::Json } else { Format::Csv };
    let format = match args.format.or_else(|| by_name(&args.file)) {
        Some(format) => format,
        None if args.file.extension().is_some() => return Err(unknown(&args.file)),
        None => fallback,
    };
    let backend = args.backend.open(&PolicyArgs::default(), IfMissing::Refuse)?;
    let what = Export { format, hashes: args.hashes, domain: args.domain.as_deref() };
    let bar = progress::bytes(None);
    let exported = if args.file == Path::new("-") {
        if output.is_terminal() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        backend.export(&what, &mut bar.wrap_write(output.raw()), &|error| Closed(error).into())
    } else {
        let failed = |source| Error::File { path: args.file.clone(), source };
        let file = create(&args.file).map_err(failed)?;
        let mut file = BufWriter::new(bar.wrap_write(file));
        backend
            .export(&what, &mut file, &failed)
            .and_then(|locked| file.flush().map_err(failed).map(|()| locked))
    };
    bar.finish_and_clear();
    let locked = exported?;
    if locked > 0 {
        eprintln!(
            "note: {locked} links ask for a password, which is left out: they are exported as disabled. --hashes takes \
             the passwords along"
        );
    }
    Ok(())
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)
}
