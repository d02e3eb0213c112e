//! The file of settings.

use std::collections::HashMap;
use std::path::Path;

use clap::Command;
use toml::{Table, Value};

use super::error::{Error, Origin};
use super::{CONFIG, Given, is_setting, takes_many};

/// The longest file of settings, in bytes. A longer one was named by mistake.
const MAX: u64 = 1 << 20;

/// The settings in the file at `path`, by long name. All must be settings of `command`.
pub(super) fn read(path: &Path, command: &Command) -> Result<HashMap<String, Given>, Error> {
    let text = text(path).map_err(|source| Error::Read { path: path.into(), source })?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| Error::Syntax {
        path: path.into(),
        line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        reason: error.message().to_owned(),
    })?;
    let mut given = HashMap::new();
    collect(&mut given, path, command, "", table)?;
    Ok(given)
}

fn text(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX + 1).read_to_string(&mut text)?;
    if read as u64 > MAX { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Adds the settings of `table`, whose names start with `prefix`.
fn collect(
    given: &mut HashMap<String, Given>,
    path: &Path,
    command: &Command,
    prefix: &str,
    table: Table,
) -> Result<(), Error> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.replace('_', "-"));
        let value = match value {
            Value::Table(table) => {
                collect(given, path, command, &format!("{name}-"), table)?;
                continue;
            }
            value => value,
        };
        let fault = |reason| Error::Key { path: path.into(), key: name.clone(), reason };
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(&*name) && name != CONFIG && is_setting(arg))
            .ok_or_else(|| fault("there is no such setting"))?;
        let values = match value {
            Value::Array(values) if takes_many(arg) => values
                .into_iter()
                .map(scalar)
                .collect::<Option<_>>()
                .ok_or_else(|| fault("its values are nested"))?,
            Value::Array(_) => return Err(fault("it takes one value")),
            value => vec![scalar(value).ok_or_else(|| fault("its value is nested"))?],
        };
        let origin = Origin::File { path: path.into(), key: name.clone() };
        if given.insert(name.clone(), Given { values, origin }).is_some() {
            return Err(fault("it is there twice"));
        }
    }
    Ok(())
}

/// A value as it would be written for a flag.
fn scalar(value: Value) -> Option<std::ffi::OsString> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            Some(value.to_string().into())
        }
        Value::Array(_) | Value::Table(_) => None,
    }
}
