//! `key`: manages keys of the API.

use clap::Subcommand;
use serde::Serialize;

use crate::cli::database::{DatabaseArgs, IfMissing};
use crate::cli::fields::words;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output};
use crate::domains::DomainId;
use crate::store::{self, NewToken, Scope, Store, TokenInfo};
use crate::when::Timestamp;

/// Arguments of `key`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Add a key and print it, only this once: the database has only its hash.
    #[command(alias = "create")]
    Add {
        /// Its purpose.
        name: String,
        /// Its rights; write includes read.
        #[arg(long, value_name = "SCOPE", value_parser = words::<Scope>(["read", "write"]))]
        scope: Scope,
        /// A domain that it is for; "default" is the one without a name; may be repeated. Without this flag, it is for
        /// all domains.
        #[arg(long = "domain", value_name = "HOST")]
        domains: Vec<String>,
        /// When it expires: RFC 3339, a date, or a span from now such as 90d. Default: never.
        #[arg(long, value_name = "WHEN", value_parser = Timestamp::parse)]
        expires: Option<Timestamp>,
        /// Where.
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List the keys.
    List {
        /// Where.
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Revoke keys.
    #[command(alias = "revoke")]
    Rm {
        /// Their ids, from the list.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<i64>,
        /// Where.
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// A new key, for programs.
#[derive(Debug, Serialize)]
struct Created {
    key: String,
    #[serde(flatten)]
    info: TokenInfo,
}

/// The keys, for programs.
#[derive(Debug, Serialize)]
struct Keys {
    keys: Vec<TokenInfo>,
}

#[derive(Debug, Serialize)]
struct Revoked {
    revoked: i64,
}

/// Creates, lists or revokes.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    match args.action {
        Action::Add { name, scope, domains, expires, database } => {
            let store = database.open(&PolicyArgs::default(), IfMissing::Create)?;
            let new = NewToken { name, scope, domains: ids(&store, &domains)?, expires_at: expires };
            let (info, key) = store.done(store.create_token_as(new))?;
            output.show(&Created { key, info }, |created, output| output.line(&created.key))
        }
        Action::List { database } => {
            let store = database.open(&PolicyArgs::default(), IfMissing::Refuse)?;
            let keys = store.reader()?.tokens()?;
            output.show(&Keys { keys }, |Keys { keys }, output| {
                if keys.iter().all(|key| key.domains.is_none()) {
                    let header = ["ID", "NAME", "SCOPE", "CREATED", "EXPIRES", "USED"];
                    return output.table(header, keys.iter().map(row));
                }
                let header = ["ID", "NAME", "SCOPE", "CREATED", "EXPIRES", "USED", "DOMAINS"];
                output.table(header, keys.iter().map(row_with_domains))
            })
        }
        Action::Rm { ids, database } => {
            let store = database.open(&PolicyArgs::default(), IfMissing::Refuse)?;
            ids.into_iter().try_for_each(|id| {
                store.done(store.revoke_token(id))?;
                output.show(&Revoked { revoked: id }, |_, output| output.line(format_args!("revoked {id}")))
            })
        }
    }
}

/// The ids of a new key's domains; `None` means all domains.
fn ids(store: &Store, domains: &[String]) -> Result<Option<Vec<DomainId>>, Error> {
    if domains.is_empty() {
        return Ok(None);
    }
    let known = store.domains();
    Ok(Some(
        domains
            .iter()
            .map(|domain| known.id(Some(domain)))
            .collect::<Result<_, _>>()
            .map_err(store::Error::from)?,
    ))
}

fn row_with_domains(token: &TokenInfo) -> [String; 7] {
    let [id, name, scope, created, expires, used] = row(token);
    let domains = token.domains.as_ref().map_or_else(|| "(all)".to_owned(), |domains| domains.join(" "));
    [id, name, scope, created, expires, used, domains]
}

fn row(token: &TokenInfo) -> [String; 6] {
    let instant = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let scope = match token.scope {
        Scope::Read => "read",
        Scope::Write => "write",
    };
    [
        token.id.to_string(),
        token.name.clone(),
        scope.to_owned(),
        token.created_at.to_string(),
        instant(token.expires_at),
        instant(token.last_used_at),
    ]
}
