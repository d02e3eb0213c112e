//! `list`: shows a page of links, or all links.

use std::io;

use service::output::Closed;

use crate::admin::{Listing, Shown};
use crate::cli::backend::{Backend, BackendArgs};
use crate::cli::database::IfMissing;
use crate::cli::fields::words;
use crate::cli::policy::{PolicyArgs, PublicArgs};
use crate::cli::{Error, Output, shown};
use crate::domains::InDomains;
use crate::link::Status;
use crate::store::{ListQuery, Sort};
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};

/// The most links a page may have.
const PAGE: usize = 1000;

/// The possible orders of a list.
const SORTS: [&str; 8] = ["created", "-created", "updated", "-updated", "clicks", "-clicks", "code", "-code"];

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only links whose code, target or title contains this, in any case.
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,

    /// Only links with this tag.
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,

    /// Only links of this status.
    #[arg(long, value_name = "STATUS", value_parser = words::<Status>(["active", "disabled"]))]
    pub status: Option<Status>,

    /// Only links of this domain; "default" is the one without a name.
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// The order: a field, with a leading - for greatest first. Default: newest link first.
    #[arg(long, value_name = "FIELD", default_value = "-created", hide_default_value = true,
          allow_hyphen_values = true, value_parser = PossibleValuesParser::new(SORTS))]
    pub sort: String,

    /// Greatest first.
    #[arg(long)]
    pub desc: bool,

    /// The most links to show.
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=PAGE as u64))]
    pub limit: usize,

    /// Continue where another list ended, at this cursor.
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,

    /// Show all links, page after page.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,

    /// Where.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// What short URLs begin with.
    #[command(flatten)]
    pub public: PublicArgs,
}

/// Prints links.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    let policy = PolicyArgs { public: args.public, ..PolicyArgs::default() };
    let backend = args.backend.open(&policy, IfMissing::Refuse)?;
    let (name, descending) =
        args.sort.strip_prefix('-').map_or((args.sort.as_str(), false), |name| (name, true));
    let sort = match name {
        "updated" => Sort::Updated,
        "clicks" => Sort::Clicks,
        "code" => Sort::Code,
        _ => Sort::Created,
    };
    let query = ListQuery {
        search: args.search,
        tag: args.tag,
        status: args.status,
        domains: InDomains::All,
        sort,
        descending: descending || args.desc,
        limit: if args.all { PAGE } else { args.limit },
        cursor: args.cursor,
        within: None,
    };
    let domain = args.domain.as_deref();
    match (args.all, output.is_json()) {
        (true, true) => all_as_json(&backend, domain, query, output),
        (true, false) => each_page(&backend, domain, query, |page| table(&page, output)),
        (false, _) => output.show(&backend.list(domain, query)?, |page, output| {
            table(page, output)?;
            if let Some(cursor) = &page.next {
                // This is not a part of the list, so it goes to stderr and not into a pipe.
                match page.looked_at {
                    Some(seen) => {
                        eprintln!("Of the first {seen} looked at; further: --cursor {cursor}, or --all")
                    }
                    None => eprintln!("There are more: --cursor {cursor}, or --all"),
                }
            }
            Ok(())
        }),
    }
}

fn each_page(
    backend: &Backend,
    domain: Option<&str>,
    mut query: ListQuery,
    mut each: impl FnMut(Listing) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        let page = backend.list(domain, query.clone())?;
        query.cursor.clone_from(&page.next);
        each(page)?;
        if query.cursor.is_none() {
            return Ok(());
        }
    }
}

/// Prints all links as one [`Listing`], as they arrive.
fn all_as_json(
    backend: &Backend,
    domain: Option<&str>,
    query: ListQuery,
    output: &mut Output,
) -> Result<(), Error> {
    let mut before = "{\"links\":[";
    each_page(backend, domain, query, |page| {
        for link in page.links {
            let raw = output.raw();
            raw.write_all(before.as_bytes()).map_err(Closed)?;
            before = ",";
            serde_json::to_writer(raw, &link).map_err(io::Error::from).map_err(Closed)?;
        }
        Ok(())
    })?;
    let end = if before == "," { "],\"next\":null}" } else { "{\"links\":[],\"next\":null}" };
    output.line(end)
}

fn table(page: &Listing, output: &mut Output) -> Result<(), Error> {
    output.table(
        ["CODE", "TARGET", "TITLE", "TAGS", "STATUS", "CLICKS", "CREATED"],
        page.links.iter().map(|Shown { link, .. }| {
            [
                shown::code(link),
                link.target.clone(),
                shown::or_dash(link.title.as_ref()),
                shown::tags(link),
                shown::status(link.status).to_owned(),
                link.clicks.to_string(),
                link.created_at.to_string(),
            ]
        }),
    )
}
