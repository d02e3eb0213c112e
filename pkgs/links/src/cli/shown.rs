//! A link as commands print it.

use serde::{Deserialize, Serialize};

use super::Error;
use super::fields::or_dash;
use super::output::Output;
use super::policy::PublicArgs;
use crate::link::{Link, Status};

/// A link with its short URL, as the API has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Shown {
    /// The link.
    #[serde(flatten)]
    pub link: Link,
    /// What to hand out.
    pub short_url: String,
}

/// A page of links, as the API has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The links.
    pub links: Vec<Shown>,
    /// The cursor of the next page; none on the last.
    pub next: Option<String>,
}

impl Shown {
    /// A link under a public URL.
    pub fn new(link: Link, public: &PublicArgs) -> Self {
        Self { short_url: public.short_url(&link.code), link }
    }

    /// Prints all of it.
    pub fn print(&self, output: &mut Output) -> Result<(), Error> {
        let link = &self.link;
        output.pairs(&[
            ("short URL", self.short_url.clone()),
            ("target", link.target.clone()),
            ("title", or_dash(link.title.as_ref())),
            ("tags", or_dash((!link.tags.is_empty()).then(|| link.tags.join(" ")))),
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
        ])
    }
}

/// The word for a status.
pub fn status(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Disabled => "disabled",
    }
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
