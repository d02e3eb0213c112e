//! `key`: manages keys of the API.

use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;

use super::database::CommandArgs;
use super::{Error, Output};
use crate::keys::{KeyInfo, Secret, end};
use crate::store::{NewKey, Scope};

/// Arguments of `key`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,

    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub json: bool,

    /// Where.
    #[command(flatten)]
    pub database: CommandArgs,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Add a key and print it, only this once: the database has only its digest.
    Add {
        /// Its purpose.
        name: String,
        /// Its rights; write includes read.
        #[arg(long, value_name = "SCOPE", default_value = "read")]
        scope: ScopeName,
        /// Requests per second in the long run; 0 for no limit.
        #[arg(long, value_name = "N", default_value_t = 100)]
        rate: u32,
        /// Requests at once. Default: as many as one second's.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        burst: Option<u32>,
        /// When it expires: RFC 3339, or a span from now such as 90d. Default: never.
        #[arg(long, value_name = "WHEN", value_parser = end)]
        expires: Option<Timestamp>,
    },
    /// List the keys.
    List,
    /// Revoke keys.
    Rm {
        /// Their ids, from the list.
        #[arg(required = true)]
        ids: Vec<i64>,
    },
}

/// The rights of a key.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ScopeName {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// A new key, for programs.
#[derive(Debug, Serialize)]
struct Added {
    key: String,
    #[serde(flatten)]
    info: KeyInfo,
}

/// All keys, for programs.
#[derive(Debug, Serialize)]
struct Keys {
    keys: Vec<KeyInfo>,
}

/// Adds, lists or revokes.
pub(super) fn run(args: Args) -> Result<(), Error> {
    let mut output = Output::new(args.json);
    let database = args.database.open()?;
    match args.action {
        Action::Add { name, scope, rate, burst, expires } => {
            let secret = Secret::generate().map_err(Error::Randomness)?;
            let scope = match scope {
                ScopeName::Read => Scope::Read,
                ScopeName::Write => Scope::Write,
            };
            let rate = Some(rate).filter(|rate| *rate > 0);
            let key = NewKey { name, digest: secret.digest(), scope, rate, burst, expires_at: expires };
            let key = database.run(async |users| users.add_key(key).await)?;
            let added = Added { key: secret.expose().to_owned(), info: key.into() };
            output.show(&added, |_, output| output.line(secret.expose()))?;
        }
        Action::List => {
            let keys = database.run(async |users| users.list_keys().await)?;
            let keys: Vec<KeyInfo> = keys.into_iter().map(KeyInfo::from).collect();
            output.show(&Keys { keys }, |Keys { keys }, output| {
                let header = ["ID", "NAME", "SCOPE", "RATE", "BURST", "CREATED", "EXPIRES", "LAST USED"];
                output.table(header, keys.iter().map(row))
            })?;
        }
        Action::Rm { ids } => {
            for id in ids {
                if !database.run(async |users| users.revoke_key(id).await)? {
                    output.flush()?;
                    return Err(Error::NoKey(id));
                }
                output.show(&serde_json::json!({ "revoked": id }), |_, output| {
                    output.line(format_args!("revoked {id}"))
                })?;
            }
        }
    }
    output.flush()
}

fn row(key: &KeyInfo) -> [String; 8] {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        key.id.to_string(),
        key.name.clone(),
        key.scope.to_owned(),
        or_none(key.rate.map(|rate| format!("{rate}/s"))),
        or_none(key.burst.or(key.rate).map(|burst| burst.to_string())),
        key.created_at.to_string(),
        or_none(key.expires_at.map(|at| at.to_string())),
        or_none(key.last_used_at.map(|at| at.to_string())),
    ]
}
