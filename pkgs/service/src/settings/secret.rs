//! Settings that contain a secret.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, Command};

/// Parses a setting that contains a secret, such as a database's URL. Whatever is wrong with the value, no message
/// contains it. `T`'s errors must not contain it either, and the argument's `hide_env_values` keeps it out of the help.
///
/// ```
/// # use service::settings;
/// #[derive(clap::Args)]
/// struct Args {
///     /// Where data is kept.
///     #[arg(long, value_parser = settings::secret::<u16>(), hide_env_values = true)]
///     database_url: Option<u16>,
/// }
/// ```
pub fn secret<T>() -> Secret<T> {
    Secret(PhantomData)
}

/// The parser that [`secret`] returns.
#[derive(Debug)]
pub struct Secret<T>(PhantomData<fn() -> T>);

impl<T> Clone for Secret<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> TypedValueParser for Secret<T>
where
    T: FromStr<Err: std::fmt::Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        self.parse_ref_(command, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<T, clap::Error> {
        let parsed = match value.to_str() {
            Some(text) => text.parse().map_err(|error: T::Err| error.to_string()),
            None => Err("it is not UTF-8".to_owned()),
        };
        parsed.map_err(|reason| {
            let name = arg.map(Arg::to_string).unwrap_or_default();
            let variable = arg.and_then(Arg::get_env).map(OsStr::to_string_lossy);
            let message = match (source, variable) {
                (ValueSource::EnvVariable, Some(variable)) => format!("{variable}: {reason}"),
                _ => format!("invalid value for '{name}': {reason}"),
            };
            let mut error = clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command);
            error.insert(ContextKind::InvalidArg, ContextValue::String(name));
            // If the value is in the file, a variable or a credential, the code that shows the error says which one.
            if source != ValueSource::EnvVariable {
                error.insert(ContextKind::Custom, ContextValue::String(reason));
            }
            error
        })
    }
}
