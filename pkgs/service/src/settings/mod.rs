//! Settings: each is defined once, and can be given in four places.
//!
//! A setting is a field of a `clap` struct with a long name. Its doc comment is its help, its type says what it
//! accepts, and its name gives the other names. For `--cache-bytes`, a later row overrides the earlier ones:
//!
//! | place | form |
//! |---|---|
//! | default | `default_value` of the field |
//! | file (`--config FILE`) | `cache-bytes = 1` or `[cache]` with `bytes = 1`; `_` does for `-` |
//! | credential | a file `LINERATE_LINKS_CACHE_BYTES` in `$CREDENTIALS_DIRECTORY`, read as a variable would be |
//! | environment | `LINERATE_LINKS_CACHE_BYTES=1`; empty is unset, several values have commas between |
//! | flag | `--cache-bytes 1` |
//!
//! For a flag without a value, `true` sets it and `false` does not. File and environment become arguments in front of
//! those of the command line, so clap checks them as it checks flags: their values, what they require, and what they
//! exclude.
//!
//! Other subcommands with `--config` take the settings that they share from the same file, as defaults: the file is the
//! server's, and excludes nothing that somebody asks of another command.

mod error;
mod file;
mod fingerprint;
mod secret;

pub use error::Error;
pub use fingerprint::{Fingerprint, fingerprint};
pub use secret::{Secret, secret};

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser};
use error::Origin;

/// The file with more settings.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// A TOML file with settings, named as the flags without their dashes in front.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The setting that names the file of settings.
const CONFIG: &str = "config";

/// The flag that only checks the settings.
const CHECK: &str = "check";

/// Where systemd puts a unit's credentials (systemd.exec(5)): secrets that are neither in the environment nor in the
/// file of settings.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Parses the command line of `P` and the settings of its `subcommand`, from this process's arguments, environment,
/// credentials and file. Help, version and errors end the process; errors with code 2 and one line on stderr. With
/// `--check` the process ends here too, with 0 if the settings are valid.
pub fn parse<P: Parser>(service: &str, subcommand: &str) -> P {
    let (parsed, fingerprint) = parse_args(service, subcommand, std::env::args_os());
    fingerprint.is_of_this_process();
    parsed
}

/// Like [`parse`], but with other arguments (starting with the program's name) than this process's, for a command that
/// concerns another process. Also returns the settings' checksum.
pub fn parse_args<P: Parser>(
    service: &str,
    subcommand: &str,
    args: impl IntoIterator<Item: Into<OsString>>,
) -> (P, Fingerprint) {
    match read(service, subcommand, args, of_process()) {
        Ok(Read { check: true, .. }) => std::process::exit(0),
        Ok(Read { parsed, fingerprint, .. }) => (parsed, fingerprint),
        Err(error) => error.exit(),
    }
}

/// Like [`parse`], for a process that continues whatever the result is, such as one that reads its settings again.
///
/// # Errors
/// As [`try_parse_from`].
pub fn try_parse<P: Parser>(service: &str, subcommand: &str) -> Result<P, Error> {
    try_parse_args(service, subcommand, std::env::args_os())
}

/// Like [`try_parse`], with other arguments (starting with the program's name) than this process's, for a command that
/// works with another process's settings.
///
/// # Errors
/// As [`try_parse_from`].
pub fn try_parse_args<P: Parser>(
    service: &str,
    subcommand: &str,
    args: impl IntoIterator<Item: Into<OsString>>,
) -> Result<P, Error> {
    try_parse_from(service, subcommand, args, of_process())
}

/// Like [`parse`], with these `args` (starting with the program's name) and this environment.
///
/// # Errors
/// When a file cannot be read or names an unknown setting, or a value is not acceptable. Help and version are
/// [`Error::Usage`] too, as in clap.
pub fn try_parse_from<P: Parser>(
    service: &str,
    subcommand: &str,
    args: impl IntoIterator<Item: Into<OsString>>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<P, Error> {
    read(service, subcommand, args, env).map(|read| read.parsed)
}

/// This process's environment, including its credentials. An empty variable hides no credential.
fn of_process() -> impl Fn(&str) -> Option<OsString> {
    let credentials = std::env::var_os(CREDENTIALS).map(PathBuf::from);
    move |name| {
        let variable = std::env::var_os(name).filter(|value| !value.is_empty());
        variable.or_else(|| credential(credentials.as_deref()?, name))
    }
}

/// The result of reading.
struct Read<P> {
    parsed: P,
    /// Whether the settings are only to be checked.
    check: bool,
    fingerprint: Fingerprint,
}

/// Parses as [`try_parse_from`] does, and returns more about the result.
fn read<P: Parser>(
    service: &str,
    subcommand: &str,
    args: impl IntoIterator<Item: Into<OsString>>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Read<P>, Error> {
    let mut args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    // The names of all variables are found here.
    let whole = command::<P>(service, subcommand);
    let mut command = without_empty(whole.clone());
    let env = |arg: &Arg| {
        let own = || Some(arg.get_env()?.to_str()?.to_owned());
        variable(service, arg).or_else(own).and_then(|name| Some((env(&name)?, name)))
    };

    // First parse the arguments leniently, to find out whether it is this subcommand, and which file it names. Help
    // ends here, so that it shows the program's defaults.
    let look = command.clone().ignore_errors(true).try_get_matches_from(&args)?;
    let mut given = HashMap::new();
    if let (Some(settings), Some(look)) =
        (whole.find_subcommand(subcommand), look.subcommand_matches(subcommand))
    {
        if let Some(path) = config(settings, look, env) {
            given = file::read(Path::new(&path), settings)?;
        }
        for arg in settings.get_arguments() {
            if let (Some(name), Some((value, variable))) =
                (arg.get_long(), env(arg).filter(|(v, _)| !v.is_empty()))
            {
                given.insert(
                    name.to_owned(),
                    Given { values: split(arg, value), origin: Origin::Env(variable) },
                );
            }
        }
        override_by(look, settings, &mut given);
        let start = start(&command, &args, subcommand);
        args.splice(start..start, as_args(settings, &given));
        command = command.mut_subcommand(subcommand, |settings| overlay(settings, &given));
    } else if let Some(settings) = whole.find_subcommand(subcommand) {
        // Another subcommand takes the settings that it shares with this one from the same file, by the same names.
        let (path, look) = chosen(&look);
        if let Some(chosen) = below(&whole, &path) {
            if let Some(file) = config(chosen, look, env) {
                given = file::read(Path::new(&file), settings)?;
            }
            override_by(look, chosen, &mut given);
            command = mut_below(command, &path, &|chosen| overlay(chosen, &given));
        }
    }

    let mut matches = command.try_get_matches_from_mut(&args).map_err(|error| Error::of(error, &given))?;
    let settings = matches.subcommand_matches(subcommand);
    let check = settings.is_some_and(|settings| settings.get_flag(CHECK));
    let fingerprint = Fingerprint::of(settings);
    let parsed = P::from_arg_matches_mut(&mut matches);
    let parsed = parsed.map_err(|error| Error::of(error.format(&mut command), &given))?;
    Ok(Read { parsed, check, fingerprint })
}

/// The command line of `P`, in which the help of each setting of `subcommand` names its variable. [`parse`] uses it,
/// and so do manual pages and completions.
pub fn command<P: Parser>(service: &str, subcommand: &str) -> Command {
    P::command().mut_subcommand(subcommand, |settings| {
        let check = Arg::new(CHECK).long(CHECK).action(ArgAction::SetTrue);
        let check = check.help("Read the settings, say what is wrong with them, and end");
        settings.mut_args(|arg| documented(service, arg)).arg(check)
    })
}

/// Removes the variables that are empty from `command` and its subcommands, since clap, which reads this process's
/// environment, takes them for values.
fn without_empty(command: Command) -> Command {
    let unset = |arg: Arg| {
        let name = arg.get_env().and_then(OsStr::to_str).map(str::to_owned);
        match name.filter(|name| std::env::var_os(name).is_some_and(|value| value.is_empty())) {
            // The same text as clap's help for an unset variable.
            Some(name) => with_note(arg.env(None::<&'static str>), &format!("[env: {name}=]")),
            None => arg,
        }
    };
    command.mut_args(unset).mut_subcommands(without_empty)
}

/// The chosen subcommand's name, after those of its parents, and its arguments.
fn chosen(look: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut path, mut at) = (Vec::new(), look);
    while let Some((name, below)) = at.subcommand() {
        path.push(name.to_owned());
        at = below;
    }
    (path, at)
}

fn below<'c>(command: &'c Command, path: &[String]) -> Option<&'c Command> {
    path.iter().try_fold(command, |command, name| command.find_subcommand(name))
}

fn mut_below(command: Command, path: &[String], change: &dyn Fn(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        [name, rest @ ..] => command.mut_subcommand(name, |below| mut_below(below, rest, change)),
    }
}

/// The credential with a variable's name, without the line feed that editors put at the end of a file.
fn credential(directory: &Path, name: &str) -> Option<OsString> {
    let mut value = std::fs::read(directory.join(name)).ok()?;
    if value.ends_with(b"\n") {
        value.pop();
    }
    Some(OsString::from_vec(value))
}

/// A setting's value from the file or the environment.
struct Given {
    values: Vec<OsString>,
    origin: Origin,
}

/// A setting's variable: `LINERATE_LINKS_CACHE_BYTES`. None if the argument is not a setting, or has its own variable.
fn variable(service: &str, arg: &Arg) -> Option<String> {
    let name = arg.get_long().filter(|_| is_setting(arg) && arg.get_env().is_none())?;
    Some(format!("LINERATE_{service}_{name}").replace('-', "_").to_uppercase())
}

fn is_setting(arg: &Arg) -> bool {
    use ArgAction::{Append, Count, Set, SetFalse, SetTrue};
    arg.get_long().is_some_and(|name| name != CHECK)
        && matches!(arg.get_action(), Set | Append | SetTrue | SetFalse | Count)
}

fn takes_many(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

fn documented(service: &str, arg: Arg) -> Arg {
    match variable(service, &arg) {
        Some(variable) => with_note(arg, &format!("[env: {variable}]")),
        None => arg,
    }
}

/// `arg` with a note at the end of its help.
fn with_note(arg: Arg, note: &str) -> Arg {
    let noted = |help: Option<&StyledStr>| {
        let mut help = help.cloned().unwrap_or_default();
        write!(help, " {note}").expect("a string takes all that is written");
        help
    };
    let (short, long) = (noted(arg.get_help()), arg.get_long_help().map(|long| noted(Some(long))));
    match long {
        Some(long) => arg.help(short).long_help(long),
        None => arg.help(short),
    }
}

/// The path of the file: from the flag, else the environment, else the default.
fn config(
    settings: &Command,
    look: &ArgMatches,
    env: impl Fn(&Arg) -> Option<(OsString, String)>,
) -> Option<OsString> {
    let arg = settings.get_arguments().find(|arg| arg.get_long() == Some(CONFIG))?;
    let id = arg.get_id().as_str();
    let parsed = || look.get_raw(id)?.next().map(OsStr::to_owned);
    match look.value_source(id) {
        Some(ValueSource::CommandLine) => parsed(),
        _ => env(arg).map(|(path, _)| path).filter(|path| !path.is_empty()).or_else(parsed),
    }
}

/// The values in a variable, separated by commas if the setting takes several.
fn split(arg: &Arg, value: OsString) -> Vec<OsString> {
    match value.to_str() {
        Some(text) if takes_many(arg) => {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(OsString::from).collect()
        }
        _ => vec![value],
    }
}

/// Removes the given values that the command line overrides.
fn override_by(look: &ArgMatches, settings: &Command, given: &mut HashMap<String, Given>) {
    for arg in settings.get_arguments() {
        if let (Some(name), Some(ValueSource::CommandLine)) =
            (arg.get_long(), look.value_source(arg.get_id().as_str()))
        {
            given.remove(name);
        }
    }
}

/// Where the arguments of the chosen `subcommand` start. The value of an option before it may have the same name.
fn start(command: &Command, args: &[OsString], subcommand: &str) -> usize {
    let is_chosen = |end: &usize| {
        let look = command.clone().ignore_errors(true).try_get_matches_from(&args[..*end]);
        look.is_ok_and(|look| look.subcommand_name() == Some(subcommand))
    };
    (1..args.len()).find(is_chosen).unwrap_or(args.len())
}

/// The given values as arguments, always in the same order, since the [`Fingerprint`] depends on it. Leaves to
/// [`overlay`] what no argument can say: an empty list, and that a flag without a value is not set, or set to a text.
fn as_args(settings: &Command, given: &HashMap<String, Given>) -> Vec<OsString> {
    let mut args = Vec::new();
    for arg in settings.get_arguments() {
        let Some((name, given)) = arg.get_long().and_then(|name| given.get_key_value(name)) else { continue };
        match (arg.get_action(), &given.values[..]) {
            (ArgAction::SetTrue, [value]) if value == "true" => args.push(format!("--{name}").into()),
            (ArgAction::Append, values) | (ArgAction::Set, values @ [_]) => {
                for value in values {
                    let mut arg = OsString::from(format!("--{name}="));
                    arg.push(value);
                    args.push(arg);
                }
            }
            _ => {}
        }
    }
    args
}

/// `settings`, with the given values as defaults.
fn overlay(settings: Command, given: &HashMap<String, Given>) -> Command {
    settings.mut_args(|arg| match arg.get_long().and_then(|name| given.get(name)) {
        Some(given) => {
            let required = arg.is_required_set() && given.values.is_empty();
            arg.required(required).default_values(given.values.iter().cloned())
        }
        None => arg,
    })
}

#[cfg(test)]
mod tests;
