//! Access to links: in the database, or through a running server's API. Commands work with either.

use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use jiff::civil::Date;
use url::Url;

use super::Error;
use super::api::{self, Client, Export};
use super::database::{DatabaseArgs, IfMissing, OpenDatabase};
use super::policy::{PolicyArgs, PublicArgs};
use super::shown::with_short_url;
use crate::admin::{DomainList, Listing, Shown};
use crate::domains::{Domain, DomainId, DomainPatch, InDomains, LinkKey, NewDomain};
use crate::link::{LinkPatch, ManyPatch, NewLink};
use crate::store::{self, ListQuery, Reader, Stats, StatsScope, Tally};
use crate::transfer::{self, Format, ImportOptions, Writer};

/// Where a command finds links.
#[derive(Clone, Debug, clap::Args)]
pub struct BackendArgs {
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Use the admin API of a running server instead, such as http://127.0.0.1:8081.
    #[arg(long, value_name = "URL", env = "LINERATE_LINKS_API", value_parser = api::base, conflicts_with = "database",
          requires = "token")]
    pub api: Option<Url>,

    /// The token for the API.
    #[arg(long, value_name = "TOKEN", env = "LINERATE_LINKS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// For an https API, trust only the authorities in this PEM file. Default: the system's.
    #[arg(long, value_name = "FILE", env = "LINERATE_LINKS_CACERT", requires = "api")]
    pub cacert: Option<PathBuf>,
}

/// The place of the links.
pub enum Backend {
    /// In the database.
    Database {
        /// For everything except changes. It is dropped before the store.
        reader: Box<Reader>,
        /// For changes.
        store: OpenDatabase,
        /// The start of short URLs. With the API, the server has its own.
        public: PublicArgs,
    },
    /// Behind the API.
    Api(Client),
}

impl BackendArgs {
    /// Opens the database or the API. `policy` applies to the database; a server has its own.
    pub fn open(&self, policy: &PolicyArgs, missing: IfMissing) -> Result<Backend, Error> {
        match (&self.api, &self.token) {
            (Some(url), Some(token)) => {
                Ok(Backend::Api(Client::new(url.clone(), token, self.cacert.as_deref())?))
            }
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

    /// A link by its code, at the default domain or another.
    pub fn get(&self, domain: Option<&str>, code: &str) -> Result<Shown, Error> {
        match self {
            Self::Database { reader, store, public } => {
                Ok(with_short_url(reader.get(key(store, domain, code)?)?, public))
            }
            Self::Api(client) => Ok(client.get(domain, code)?),
        }
    }

    /// A page of links, of all domains or of one.
    pub fn list(&self, domain: Option<&str>, mut query: ListQuery) -> Result<Listing, Error> {
        match self {
            Self::Database { reader, store, public } => {
                query.domains = within(store, domain)?;
                let page = reader.list(&query)?;
                let links = page.links.into_iter().map(|link| with_short_url(link, public)).collect();
                Ok(Listing { links, next: page.next, looked_at: page.looked_at })
            }
            Self::Api(client) => Ok(client.list(domain, &query)?),
        }
    }

    /// Changes a link.
    pub fn edit(&self, domain: Option<&str>, code: &str, patch: LinkPatch) -> Result<Shown, Error> {
        match self {
            Self::Database { store, public, .. } => {
                let key = key(store, domain, code)?;
                Ok(with_short_url(store.done(store.edit(key, patch))?, public))
            }
            Self::Api(client) => Ok(client.edit(domain, code, &patch)?),
        }
    }

    /// Makes the same change to many links. Returns a result per link.
    pub fn edit_many(
        &self,
        domain: Option<&str>,
        codes: &[String],
        patch: ManyPatch,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        match self {
            Self::Database { store, .. } => {
                let domain = id(store, domain)?;
                let keys = codes.iter().map(|code| LinkKey { domain, code: code.clone() }).collect();
                let edited = store.done(store.edit_many(keys, patch, |_, _| ()))?;
                Ok(edited.into_iter().map(|edited| edited.map_err(Error::from)).collect())
            }
            Self::Api(client) => {
                let edited = client.edit_many(domain, codes, &patch)?;
                Ok(edited.into_iter().map(|edited| edited.map_err(Error::from)).collect())
            }
        }
    }

    /// Deletes a link.
    pub fn delete(&self, domain: Option<&str>, code: &str) -> Result<(), Error> {
        match self {
            Self::Database { store, .. } => store.done(store.delete(key(store, domain, code)?)),
            Self::Api(client) => Ok(client.delete(domain, code)?),
        }
    }

    /// Imports links until the input ends.
    pub fn import(&self, format: Format, input: &mut dyn Read, how: ImportOptions) -> Result<Tally, Error> {
        match self {
            Self::Database { store, .. } => {
                store.domains().id(how.domain.as_deref()).map_err(store::Error::from)?;
                Ok(transfer::import(format, input, store, &how, &mut |_| {})?)
            }
            Self::Api(client) => Ok(client.import(format, input, &how)?),
        }
    }

    /// Exports links. `failed` converts write errors. Returns how many links were disabled because their passwords are
    /// left out.
    pub fn export(
        &self,
        what: &Export<'_>,
        output: &mut dyn Write,
        failed: &dyn Fn(std::io::Error) -> Error,
    ) -> Result<u64, Error> {
        match self {
            Self::Database { reader, store, .. } => {
                let of = within(store, what.domain)?;
                let locked = if what.hashes { 0 } else { reader.locked(&of)? };
                let with_domains = !store.domains().is_empty();
                let mut writer = Writer::new(what.format, with_domains, output).map_err(failed)?;
                let mut written = Ok(());
                reader.export(&of, what.hashes, &mut |record| {
                    written = writer.write(&record);
                    written.is_ok()
                })?;
                written.and_then(|()| writer.finish()).map_err(failed)?;
                Ok(locked)
            }
            Self::Api(client) => {
                let (mut body, locked) = client.export(what)?;
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

    /// Clicks of one link, of all links, or of a domain, on these days, and by hour if requested.
    pub fn stats(
        &self,
        domain: Option<&str>,
        code: Option<&str>,
        days: RangeInclusive<Date>,
        hours: bool,
    ) -> Result<Stats, Error> {
        match self {
            Self::Database { reader, store, .. } => {
                let counted = match code {
                    Some(code) => StatsScope::Link(key(store, domain, code)?),
                    None => within(store, domain)?.into(),
                };
                let days = since_epoch(*days.start())..=since_epoch(*days.end());
                Ok(if hours { reader.stats_by_hour(counted, days)? } else { reader.stats(counted, days)? })
            }
            Self::Api(client) => Ok(client.stats(domain, code, days, hours)?),
        }
    }

    /// Creates a domain.
    pub fn create_domain(&self, new: NewDomain) -> Result<Domain, Error> {
        match self {
            Self::Database { store, .. } => store.done(store.create_domain(new)),
            Self::Api(client) => Ok(client.create_domain(&new)?),
        }
    }

    /// The domains, sorted by host.
    pub fn domains(&self) -> Result<DomainList, Error> {
        match self {
            Self::Database { store, .. } => {
                let domains = store.domains().sorted();
                Ok(DomainList { domains: domains.iter().map(|domain| Domain::clone(domain)).collect() })
            }
            Self::Api(client) => Ok(client.domains()?),
        }
    }

    /// Changes a domain.
    pub fn edit_domain(&self, host: &str, patch: DomainPatch) -> Result<Domain, Error> {
        match self {
            Self::Database { store, .. } => store.done(store.edit_domain(host.to_owned(), patch)),
            Self::Api(client) => Ok(client.edit_domain(host, &patch)?),
        }
    }

    /// Deletes a domain; with `force`, also its links.
    pub fn delete_domain(&self, host: &str, force: bool) -> Result<(), Error> {
        match self {
            Self::Database { store, .. } => {
                while !store.done(store.delete_domain(host.to_owned(), force))? {}
                Ok(())
            }
            Self::Api(client) => Ok(client.delete_domain(host, force)?),
        }
    }
}

fn id(store: &OpenDatabase, domain: Option<&str>) -> Result<DomainId, Error> {
    Ok(store.domains().id(domain).map_err(store::Error::from)?)
}

fn key(store: &OpenDatabase, domain: Option<&str>, code: &str) -> Result<LinkKey, Error> {
    Ok(LinkKey { domain: id(store, domain)?, code: code.to_owned() })
}

fn within(store: &OpenDatabase, domain: Option<&str>) -> Result<InDomains, Error> {
    Ok(match domain {
        Some(_) => InDomains::Only(vec![id(store, domain)?]),
        None => InDomains::All,
    })
}

/// Days since the Unix epoch.
fn since_epoch(day: Date) -> i32 {
    jiff::civil::date(1970, 1, 1).until(day).map_or(0, |span| span.get_days())
}
