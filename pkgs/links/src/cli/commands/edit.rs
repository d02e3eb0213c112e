//! `edit`: changes links.

use serde::Serialize;

use crate::cli::backend::{Backend, BackendArgs};
use crate::cli::database::IfMissing;
use crate::cli::fields::Fields;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output, shown};
use crate::link::{LinkPatch, ManyPatch};

/// Arguments of `edit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The links. Several get the same change, at once.
    #[arg(required = true, value_name = "CODE")]
    pub codes: Vec<String>,

    /// Their domain; the default one if absent or "default".
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// A new target.
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,

    /// A tag to add; may be repeated.
    #[arg(long = "add-tag", value_name = "TAG", conflicts_with_all = ["tags", "clear_tags"])]
    pub add_tags: Vec<String>,

    /// A tag to remove; may be repeated.
    #[arg(long = "remove-tag", value_name = "TAG", conflicts_with_all = ["tags", "clear_tags"])]
    pub remove_tags: Vec<String>,

    /// Other fields to set; --tag replaces all tags.
    #[command(flatten)]
    pub fields: Fields,

    /// Fields to clear.
    #[command(flatten)]
    pub clear: Clear,

    /// Where.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Within which rules.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Fields to clear.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Clear {
    /// Remove the title.
    #[arg(long, conflicts_with = "title")]
    pub clear_title: bool,

    /// Remove all tags.
    #[arg(long, conflicts_with = "tags")]
    pub clear_tags: bool,

    /// Require no password any more.
    #[arg(long, conflicts_with_all = ["password", "password_stdin"])]
    pub clear_password: bool,

    /// Answer at once.
    #[arg(long, conflicts_with = "not_before")]
    pub clear_not_before: bool,

    /// Never expire.
    #[arg(long, conflicts_with = "expires")]
    pub clear_expires: bool,

    /// Answer any number of times.
    #[arg(long, conflicts_with = "max_clicks")]
    pub clear_max_clicks: bool,
}

/// Changes links and prints the result.
pub fn run(mut args: Args, output: &mut Output) -> Result<(), Error> {
    let password = args.fields.password()?;
    let (fields, clear) = (args.fields, args.clear);
    let patch = LinkPatch {
        target: args.target,
        title: set_or_clear(fields.title, clear.clear_title),
        tags: (clear.clear_tags || !fields.tags.is_empty()).then_some(fields.tags),
        status: fields.status,
        redirect: fields.redirect,
        forward_query: fields.forward_query,
        password: set_or_clear(password, clear.clear_password),
        not_before: set_or_clear(fields.not_before, clear.clear_not_before),
        expires_at: set_or_clear(fields.expires, clear.clear_expires),
        max_clicks: set_or_clear(fields.max_clicks, clear.clear_max_clicks),
    };
    let retags = !args.add_tags.is_empty() || !args.remove_tags.is_empty();
    if patch == LinkPatch::default() && !retags {
        return Err(Error::NothingToChange("--target, --title, --tag"));
    }
    let backend = args.backend.open(&args.policy, IfMissing::Refuse)?;
    let domain = args.domain.as_deref();
    let [code] = &args.codes[..] else {
        let patch = ManyPatch { set: patch, add_tags: args.add_tags, remove_tags: args.remove_tags };
        return several(&backend, domain, args.codes, patch, output);
    };
    let link = if retags {
        // Within one write, so that tags that others add meanwhile are kept.
        let patch = ManyPatch { set: patch, add_tags: args.add_tags, remove_tags: args.remove_tags };
        backend.edit_many(domain, &args.codes, patch)?.into_iter().collect::<Result<(), Error>>()?;
        backend.get(domain, code)?
    } else {
        backend.edit(domain, code, patch)?
    };
    shown::note_expired(&link);
    output.show(&link, shown::print)
}

/// The result for the links.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    edited: Vec<String>,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Failed {
    code: String,
    error: String,
}

/// Makes the same change to several links. Each succeeds or fails separately.
fn several(
    backend: &Backend,
    domain: Option<&str>,
    codes: Vec<String>,
    patch: ManyPatch,
    output: &mut Output,
) -> Result<(), Error> {
    let total = codes.len() as u64;
    let mut outcome = Outcome::default();
    let edited = backend.edit_many(domain, &codes, patch)?;
    for (code, edited) in codes.into_iter().zip(edited) {
        match edited {
            Ok(()) => outcome.edited.push(code),
            Err(error) => outcome.failed.push(Failed { code, error: error.to_string() }),
        }
    }
    output.show(&outcome, |outcome, output| {
        for code in &outcome.edited {
            output.line(format_args!("edited {code}"))?;
        }
        for Failed { code, error } in &outcome.failed {
            output.line(format_args!("left {code:?}: {error}"))?;
        }
        Ok(())
    })?;
    match outcome.failed.len() as u64 {
        0 => Ok(()),
        failed => Err(Error::Some { failed, total }),
    }
}

/// A member of a merge patch: set, cleared or absent.
pub fn set_or_clear<T>(value: Option<T>, clear: bool) -> Option<Option<T>> {
    value.map(Some).or_else(|| clear.then_some(None))
}
