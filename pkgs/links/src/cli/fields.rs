//! A link's fields as flags, for creating and editing.

use std::io::{self, BufRead};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::value::Error as WordError;
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::Error;
use crate::link::{RedirectStatus, Status};
use crate::when::Timestamp;

/// Fields that a link may have besides its code and target.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Fields {
    /// A title, for people.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,

    /// A tag; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,

    /// Whether the link answers.
    #[arg(long, value_name = "STATUS", value_parser = words::<Status>(["active", "disabled"]))]
    pub status: Option<Status>,

    /// The status code of the redirect.
    #[arg(long, value_name = "CODE", value_parser = redirect())]
    pub redirect: Option<RedirectStatus>,

    /// Append the visit's query string to the target's.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub forward_query: Option<bool>,

    /// Require this password from visitors. Others on this machine can see it, so prefer --password-stdin.
    #[arg(long, value_name = "PASSWORD")]
    pub password: Option<String>,

    /// Require a password from visitors: the first line of standard input.
    #[arg(long, conflicts_with = "password")]
    pub password_stdin: bool,

    /// Answer only from this time on: a date (UTC), RFC 3339, or a span from now such as 12h.
    #[arg(long, value_name = "WHEN", value_parser = Timestamp::parse)]
    pub not_before: Option<Timestamp>,

    /// Answer only until this time: a date (its start, UTC), RFC 3339, or a span from now such as 7d.
    #[arg(long, value_name = "WHEN", value_parser = Timestamp::parse)]
    pub expires: Option<Timestamp>,

    /// Answer only this many times. Known bots, such as chat previews, do not count and do not see the target.
    #[arg(long, value_name = "N")]
    pub max_clicks: Option<u64>,
}

impl Fields {
    /// The password, from the flag or from standard input.
    pub fn password(&mut self) -> Result<Option<String>, Error> {
        if !self.password_stdin {
            return Ok(self.password.take());
        }
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map_err(Error::Input)?;
        Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// Accepts the JSON texts of an enum's values.
pub fn words<T>(words: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words)
        .try_map(|word| T::deserialize(IntoDeserializer::<WordError>::into_deserializer(word)))
}

fn redirect() -> impl TypedValueParser<Value = RedirectStatus> {
    PossibleValuesParser::new(["301", "302", "307", "308"])
        .try_map(|text| RedirectStatus::try_from(text.parse::<u16>().unwrap_or_default()))
}
