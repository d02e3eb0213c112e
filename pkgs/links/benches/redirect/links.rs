//! The shortener under test: a database filled through its own command line, and its server.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bench::server::{Placement, Server, free_address};
use bench::{Error, setup};

use crate::codes;

/// The release binary, built by cargo with this bench.
const PROGRAM: &str = env!("CARGO_BIN_EXE_linerate-links");

/// Imports `count` links into a new database and returns how long the import took.
pub fn import(directory: &Path, count: u64) -> Result<(PathBuf, Duration), Error> {
    let list = directory.join(format!("{count}.csv"));
    let database = directory.join(format!("{count}.db"));
    let file = File::create(&list).map_err(Error::file(&list))?;
    codes::write_csv(file, count).map_err(Error::file(&list))?;
    let begin = Instant::now();
    import_by(Path::new(PROGRAM), &list, &database)?;
    Ok((database, begin.elapsed()))
}

fn import_by(program: &Path, list: &Path, database: &Path) -> Result<(), Error> {
    let mut command = Command::new(program);
    command.arg("import").arg("--database").arg(database).arg(list);
    run(&mut command, "linerate-links import")
}

/// Runs a command to its end.
fn run(command: &mut Command, name: &str) -> Result<(), Error> {
    let output = command.output().map_err(|source| Error::Run { program: name.into(), source })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Failed {
            program: name.into(),
            status: output.status,
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// The same links in a file with this name beside a database that was [imported](import). The other build makes the
/// file, since an older build can't read a database of this one. It is a copy if there is no other build.
pub fn copy_for_other(database: &Path, name: &str) -> Result<PathBuf, Error> {
    let Some(program) = setup::other_build("linerate-links")? else { return copy(database, name) };
    let own = database.with_file_name(name).with_extension("db");
    import_by(&program, &database.with_extension("csv"), &own)?;
    Ok(own)
}

/// Copies a database that no process has open to a file with this name beside it.
pub fn copy(database: &Path, name: &str) -> Result<PathBuf, Error> {
    let copy = database.with_file_name(name).with_extension("db");
    fs::copy(database, &copy).map_err(Error::file(&copy))?;
    Ok(copy)
}

/// Adds this many domains to a database that no process has open.
pub fn add_domains(database: &Path, count: usize) -> Result<(), Error> {
    for number in 0..count {
        let mut command = Command::new(PROGRAM);
        command.args(["domain", "add", &format!("d{number}.example"), "--database"]).arg(database);
        run(&mut command, "linerate-links domain add")?;
    }
    Ok(())
}

/// The name of this build in the table.
pub const NAME: &str = "linerate-links";

/// The name of another build in the table.
pub const OTHER: &str = "other build";

/// Starts the server on a database, with further arguments.
pub fn serve(database: &Path, placement: Placement, more: &[&str]) -> Result<Server, Error> {
    serve_by(NAME, Path::new(PROGRAM), database, placement, more)
}

/// Like [`serve`], with the other build, if one should be measured too; see [`setup::other_build`]. Returns `None` if
/// that build doesn't know the first of the arguments.
pub fn serve_other(database: &Path, placement: Placement, more: &[&str]) -> Result<Option<Server>, Error> {
    let Some(program) = setup::other_build("linerate-links")? else { return Ok(None) };
    if let Some(argument) = more.first() {
        let help = Command::new(&program).args(["serve", "--help"]).output();
        let help = help.map_err(|source| Error::Run { program: OTHER.into(), source })?.stdout;
        if !String::from_utf8_lossy(&help).contains(argument) {
            eprintln!("{OTHER}: left out, since it does not know {argument}");
            return Ok(None);
        }
    }
    serve_by(OTHER, &program, database, placement, more).map(Some)
}

fn serve_by(
    name: &'static str,
    program: &Path,
    database: &Path,
    placement: Placement,
    more: &[&str],
) -> Result<Server, Error> {
    let (public, admin) = (free_address()?, free_address()?);
    let mut command = placement.command(program);
    command
        .args(["serve", "--listen", &public.to_string(), "--admin", &admin.to_string()])
        .args(["--workers", &placement.workers.to_string(), "--database"])
        .arg(database)
        .args(more);
    Server::start(name, public, &mut command)
}
