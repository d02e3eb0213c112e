//! Where links are: in the database, or behind the API of a running server. Commands do not care which.

use std::io::{Read, Write};
use std::ops::RangeInclusive;

use jiff::civil::Date;
use url::Url;

use super::Error;
use super::api::{self, Client};
use super::database::{DatabaseArgs, Missing, Open};
use super::policy::{PolicyArgs, PublicArgs};
use super::shown::with_short_url;
use crate::admin::{Listing, Shown};
use crate::link::{LinkPatch, NewLink};
use crate::store::{ListQuery, OnConflict, Reader, Stats, Tally};
use crate::transfer::{self, Format, Writer};

/// Which links a command works on.
#[derive(Clone, Debug, clap::Args)]
pub struct BackendArgs {
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Work over the admin API of a running server instead, such as http://127.0.0.1:8081.
    #[arg(long, value_name = "URL", env = "LINERATE_LINKS_API", value_parser = api::base, conflicts_with = "database",
          requires = "token")]
    pub api: Option<Url>,

    /// The token for the API.
    #[arg(long, value_name = "TOKEN", env = "LINERATE_LINKS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// Where links are.
pub enum Backend {
    /// In the database.
    Database {
        /// For everything but changes; closed before the store.
        reader: Box<Reader>,
        /// For changes.
        store: Open,
        /// Where short URLs begin; a server has its own.
        public: PublicArgs,
    },
    /// Behind the API.
    Api(Client),
}

impl BackendArgs {
    /// Opens what was asked for. The policy is the database's; a server has its own.
    pub fn open(&self, policy: &PolicyArgs, missing: Missing) -> Result<Backend, Error> {
        match (&self.api, &self.token) {
            (Some(url), Some(token)) => Ok(Backend::Api(Client::new(url.clone(), token))),
            (None, Some(_)) => Err(Error::NoApi),
            (_, None) => {
                let store = self.database.open(policy, missing)?;
                let reader = Box::new(store.reader()?);
                Ok(Backend::Database { reader, store, public: policy.public.clone() })
            }
        }
    }
}

impl Backend {
    /// Creates a link.
    pub fn create(&self, link: NewLink) -> Result<Shown, Error> {
        match self {
            Self::Database { store, public, .. } => {
                Ok(with_short_url(store.done(store.create(link, None))?.link, public))
            }
            Self::Api(client) => Ok(client.create(&link)?),
        }
    }

    /// A link by code.
    pub fn get(&self, code: &str) -> Result<Shown, Error> {
        match self {
            Self::Database { reader, public, .. } => Ok(with_short_url(reader.get(code)?, public)),
            Self::Api(client) => Ok(client.get(code)?),
        }
    }

    /// A page of links.
    pub fn list(&self, query: &ListQuery) -> Result<Listing, Error> {
        match self {
            Self::Database { reader, public, .. } => {
                let page = reader.list(query)?;
                let links = page.links.into_iter().map(|link| with_short_url(link, public)).collect();
                Ok(Listing { links, next: page.next })
            }
            Self::Api(client) => Ok(client.list(query)?),
        }
    }

    /// Changes a link.
    pub fn edit(&self, code: &str, patch: LinkPatch) -> Result<Shown, Error> {
        match self {
            Self::Database { store, public, .. } => {
                Ok(with_short_url(store.done(store.edit(code.to_owned(), patch))?, public))
            }
            Self::Api(client) => Ok(client.edit(code, &patch)?),
        }
    }

    /// Deletes a link.
    pub fn delete(&self, code: &str) -> Result<(), Error> {
        match self {
            Self::Database { store, .. } => store.done(store.delete(code.to_owned())),
            Self::Api(client) => Ok(client.delete(code)?),
        }
    }

    /// Imports links until the input ends.
    pub fn import(
        &self,
        format: Format,
        input: &mut dyn Read,
        on_conflict: OnConflict,
    ) -> Result<Tally, Error> {
        match self {
            Self::Database { store, .. } => {
                Ok(transfer::import(format, input, store, on_conflict, &mut |_| {})?)
            }
            Self::Api(client) => Ok(client.import(format, input, on_conflict)?),
        }
    }

    /// Exports all links, with the hashes of their passwords where asked. `failed` says what a failure to
    /// write means. Answers how many links it disabled for want of their password.
    pub fn export(
        &self,
        format: Format,
        hashes: bool,
        output: &mut dyn Write,
        failed: &dyn Fn(std::io::Error) -> Error,
    ) -> Result<u64, Error> {
        match self {
            Self::Database { reader, .. } => {
                let locked = if hashes { 0 } else { reader.locked()? };
                let mut writer = Writer::new(format, output).map_err(failed)?;
                let mut written = Ok(());
                reader.export(hashes, &mut |record| {
                    written = writer.write(&record);
                    written.is_ok()
                })?;
                written.and_then(|()| writer.finish()).map_err(failed)?;
                Ok(locked)
            }
            Self::Api(client) => {
                let (mut body, locked) = client.export(format, hashes)?;
                let mut chunk = [0; 64 * 1024];
                loop {
                    match body.read(&mut chunk).map_err(api::Error::Answer)? {
                        0 => return Ok(locked),
                        count => output.write_all(&chunk[..count]).map_err(failed)?,
                    }
                }
            }
        }
    }

    /// Clicks of one link, or of all, on the days asked for.
    pub fn stats(&self, code: Option<&str>, days: RangeInclusive<Date>) -> Result<Stats, Error> {
        match self {
            Self::Database { reader, .. } => {
                Ok(reader.stats(code, since_epoch(*days.start())..=since_epoch(*days.end()))?)
            }
            Self::Api(client) => Ok(client.stats(code, days)?),
        }
    }
}

/// Days since the Unix epoch.
fn since_epoch(day: Date) -> i32 {
    jiff::civil::date(1970, 1, 1).until(day).map_or(0, |span| span.get_days())
}
