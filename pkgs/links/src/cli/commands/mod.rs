//! The subcommands for links, domains, tokens and the database.
// More than a dozen files: one for each command.

pub mod add;
pub mod backup;
pub mod check;
pub mod domain;
pub mod edit;
pub mod export;
pub mod get;
pub mod import;
pub mod key;
pub mod list;
pub mod migrate;
pub mod rm;
pub mod stats;
