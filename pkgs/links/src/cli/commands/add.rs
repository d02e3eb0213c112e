//! `add`: a new link.

use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::fields::Fields;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output, shown};
use crate::link::NewLink;

/// Arguments of `add`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the link shall lead.
    #[arg(value_name = "URL")]
    pub target: String,

    /// A custom code instead of a random one.
    #[arg(long, value_name = "CODE")]
    pub code: Option<String>,

    /// The domain it shall be at; the default one where absent.
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// The rest of it.
    #[command(flatten)]
    pub fields: Fields,

    /// Where to.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// The rules for codes and targets.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Adds a link and prints its short URL.
pub fn run(mut args: Args, output: &mut Output) -> Result<(), Error> {
    let password = args.fields.password()?;
    let fields = args.fields;
    let link = NewLink {
        domain: args.domain,
        code: args.code,
        target: args.target,
        title: fields.title,
        tags: fields.tags,
        status: fields.status.unwrap_or_default(),
        redirect: fields.redirect.unwrap_or_default(),
        forward_query: fields.forward_query.unwrap_or_default(),
        password,
        not_before: fields.not_before,
        expires_at: fields.expires,
        max_clicks: fields.max_clicks,
    };
    let link = args.backend.open(&args.policy, IfMissing::Create)?.create(link)?;
    shown::note_expired(&link);
    output.show(&link, |shown, output| output.line(&shown.short_url))
}
