//! `token`: who may use the API.

use clap::Subcommand;
use serde::Serialize;

use super::database::{DatabaseArgs, Missing};
use super::fields::words;
use super::policy::PolicyArgs;
use super::{Error, Output};
use crate::store::{Scope, TokenInfo};

/// Arguments of `token`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Create a token and print it, this once: the database has only its hash.
    Create {
        /// What it is for.
        name: String,
        /// What it allows; write includes read.
        #[arg(long, value_name = "SCOPE", value_parser = words::<Scope>(["read", "write"]))]
        scope: Scope,
        /// Where.
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List the tokens there are.
    List {
        /// Where.
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Revoke a token.
    Revoke {
        /// Its id, from the list.
        id: i64,
        /// Where.
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// A new token, as programs get it.
#[derive(Debug, Serialize)]
struct Created {
    token: String,
    #[serde(flatten)]
    info: TokenInfo,
}

/// The tokens, as programs get them.
#[derive(Debug, Serialize)]
struct Tokens {
    tokens: Vec<TokenInfo>,
}

#[derive(Debug, Serialize)]
struct Revoked {
    revoked: i64,
}

/// Creates, lists or revokes.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    match args.action {
        Action::Create { name, scope, database } => {
            let store = database.open(&PolicyArgs::default(), Missing::Create)?;
            let (info, token) = store.create_token(name, scope).wait()?;
            output.show(&Created { token, info }, |created, output| output.line(&created.token))
        }
        Action::List { database } => {
            let store = database.open(&PolicyArgs::default(), Missing::Refuse)?;
            let tokens = store.reader()?.tokens()?;
            output.show(&Tokens { tokens }, |Tokens { tokens }, output| {
                output.table(["ID", "NAME", "SCOPE", "CREATED"], tokens.iter().map(row))
            })
        }
        Action::Revoke { id, database } => {
            let store = database.open(&PolicyArgs::default(), Missing::Refuse)?;
            store.revoke_token(id).wait()?;
            output.show(&Revoked { revoked: id }, |_, output| output.line(format_args!("revoked {id}")))
        }
    }
}

fn row(token: &TokenInfo) -> [String; 4] {
    let scope = match token.scope {
        Scope::Read => "read",
        Scope::Write => "write",
    };
    [token.id.to_string(), token.name.clone(), scope.to_owned(), token.created_at.to_string()]
}
