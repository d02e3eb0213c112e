//! Links as commands print them.

use std::fmt::Display;

use super::policy::PublicArgs;
use super::{Error, Output};
use crate::admin::Shown;
use crate::domains::short_url;
use crate::link::{Link, Status};
use crate::when::Timestamp;

/// A link of the database, in the form of the API.
pub fn with_short_url(link: Link, public: &PublicArgs) -> Shown {
    let short_url = short_url(&public.base(), link.domain.as_deref(), &link.code);
    Shown { short_url, link }
}

/// Notes that a link has already expired.
pub fn note_expired(shown: &Shown) {
    if shown.link.expires_at.is_some_and(|at| at <= Timestamp::now()) {
        eprintln!("note: this link has expired already: it answers 410");
    }
}

/// Prints all of a link.
pub fn print(shown: &Shown, output: &mut Output) -> Result<(), Error> {
    let Shown { link, short_url } = shown;
    let mut pairs = vec![("short URL", short_url.clone())];
    pairs.extend(link.domain.iter().map(|domain| ("domain", domain.clone())));
    pairs.extend([
        ("target", link.target.clone()),
        ("title", or_dash(link.title.as_ref())),
        ("tags", tags(link)),
        ("status", status(link.status).to_owned()),
        ("redirect", link.redirect.code().to_string()),
        ("forwards the query", yes(link.forward_query)),
        ("asks for a password", yes(link.protected)),
        ("not before", or_dash(link.not_before)),
        ("expires", or_dash(link.expires_at)),
        ("clicks", link.clicks.to_string()),
        ("clicks at most", or_dash(link.max_clicks)),
        ("created", link.created_at.to_string()),
        ("updated", link.updated_at.to_string()),
    ]);
    output.pairs(&pairs)
}

/// The code of a link, after its domain if it has one.
pub fn code(link: &Link) -> String {
    link.domain.as_ref().map_or_else(|| link.code.clone(), |domain| format!("{domain}/{}", link.code))
}

/// The tags of a link in one text.
pub fn tags(link: &Link) -> String {
    or_dash((!link.tags.is_empty()).then(|| link.tags.join(" ")))
}

/// A value, or a dash if it is absent.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The name of a status.
pub fn status(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Disabled => "disabled",
    }
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
