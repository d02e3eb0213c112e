//! `domain`: further hosts for links.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use super::edit::set_or_clear;
use crate::admin::DomainList;
use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::policy::PolicyArgs;
use crate::cli::shown::or_dash;
use crate::cli::{Error, Output};
use crate::domains::{Domain, DomainPatch, MAX_PAGE_BYTES, NewDomain};

/// Arguments of `domain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with domains.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Add a domain.
    Add(Add),
    /// List the domains.
    List {
        /// Where.
        #[command(flatten)]
        backend: BackendArgs,
    },
    /// Change a domain.
    Edit(Edit),
    /// Delete domains.
    Rm {
        /// Which.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// Also delete domains with links, along with the links and their clicks.
        #[arg(long)]
        force: bool,
        /// Where.
        #[command(flatten)]
        backend: BackendArgs,
    },
}

/// A domain to add.
#[derive(Debug, clap::Args)]
pub struct Add {
    /// Its host name, without scheme, port and path.
    pub host: String,

    /// What it has.
    #[command(flatten)]
    pub fields: Fields,

    /// Where to.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Within which rules.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// A domain to change.
#[derive(Debug, clap::Args)]
pub struct Edit {
    /// Which.
    pub host: String,

    /// What to set.
    #[command(flatten)]
    pub fields: Fields,

    /// Show a page that says what this is at /.
    #[arg(long, conflicts_with = "root_target")]
    pub clear_root: bool,

    /// Answer 404 to codes without a link.
    #[arg(long, conflicts_with = "default_target")]
    pub clear_default: bool,

    /// Use no page of its own for 404.
    #[arg(long, conflicts_with = "not_found_page")]
    pub clear_not_found_page: bool,

    /// Where.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Within which rules.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// What a domain may have.
#[derive(Debug, clap::Args)]
pub struct Fields {
    /// Where / redirects to.
    // Named differently from the server's setting, since a file of settings would otherwise set it.
    #[arg(long = "root", value_name = "URL")]
    pub root_target: Option<String>,

    /// Where codes without a link redirect to, instead of 404.
    #[arg(long = "default", value_name = "URL")]
    pub default_target: Option<String>,

    /// A file with the page that goes with 404, for people: HTML without scripts, at most 64 KiB.
    #[arg(long, value_name = "FILE")]
    pub not_found_page: Option<PathBuf>,
}

impl Fields {
    /// The page's text, if there is one.
    fn page(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.not_found_page else { return Ok(None) };
        let failed = |source| Error::File { path: path.clone(), source };
        let mut text = String::new();
        // Reads one byte more than allowed, to notice a longer file.
        let most = MAX_PAGE_BYTES as u64 + 1;
        File::open(path).map_err(failed)?.take(most).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 == most {
            let reason = format!("a page has at most {MAX_PAGE_BYTES} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        Ok(Some(text))
    }
}

/// The result, for programs.
#[derive(Debug, Serialize)]
struct Deleted {
    deleted: String,
}

/// Adds, lists, changes or deletes.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    match args.action {
        Action::Add(Add { host, fields, backend, policy }) => {
            let not_found_html = fields.page()?;
            let Fields { root_target, default_target, .. } = fields;
            let new = NewDomain { host, root_target, default_target, not_found_html };
            let domain = backend.open(&policy, IfMissing::Create)?.create_domain(new)?;
            output.show(&domain, |domain, output| output.line(&domain.host))
        }
        Action::List { backend } => {
            let list = backend.open(&PolicyArgs::default(), IfMissing::Refuse)?.domains()?;
            output.show(&list, |DomainList { domains }, output| {
                output.table(["HOST", "ROOT", "DEFAULT", "PAGE", "CREATED"], domains.iter().map(row))
            })
        }
        Action::Edit(edit) => {
            let page = edit.fields.page()?;
            let patch = DomainPatch {
                root_target: set_or_clear(edit.fields.root_target, edit.clear_root),
                default_target: set_or_clear(edit.fields.default_target, edit.clear_default),
                not_found_html: set_or_clear(page, edit.clear_not_found_page),
            };
            if patch == DomainPatch::default() {
                return Err(Error::NothingToChange("--root, --default, --not-found-page"));
            }
            let backend = edit.backend.open(&edit.policy, IfMissing::Refuse)?;
            output.show(&backend.edit_domain(&edit.host, patch)?, print)
        }
        Action::Rm { hosts, force, backend } => {
            let backend = backend.open(&PolicyArgs::default(), IfMissing::Refuse)?;
            hosts.into_iter().try_for_each(|host| {
                backend.delete_domain(&host, force)?;
                output.show(&Deleted { deleted: host }, |Deleted { deleted }, output| {
                    output.line(format_args!("deleted {deleted}"))
                })
            })
        }
    }
}

fn print(domain: &Domain, output: &mut Output) -> Result<(), Error> {
    let [host, root, default, page, created] = row(domain);
    output.pairs(&[
        ("host", host),
        ("root target", root),
        ("default target", default),
        ("page for 404", page),
        ("created", created),
    ])
}

fn row(domain: &Domain) -> [String; 5] {
    [
        domain.host.clone(),
        or_dash(domain.root_target.as_ref()),
        or_dash(domain.default_target.as_ref()),
        or_dash(domain.not_found_html.as_ref().map(|page| format!("{} bytes", page.len()))),
        domain.created_at.to_string(),
    ]
}
