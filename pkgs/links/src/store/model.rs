//! What goes into the store and comes out of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::Agent;
use crate::country::Country;
use crate::domains::{DomainId, InDomains, LinkKey};
use crate::link::{Link, NewLink, RedirectStatus, Status};
use crate::when::{HOURS, Timestamp};

/// The outcome of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The link as stored.
    pub link: Link,
    /// Whether an earlier request with the same idempotency key had created it.
    pub replayed: bool,
}

/// A client's promise that a repeat is the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key.
    pub key: String,
    /// SHA-256 of the request's fields as they were sent: spans such as `7d` differ once they are parsed.
    /// Without the password, which such a hash would give away to a quick search.
    pub request: [u8; 32],
}

impl IdempotencyKey {
    /// A key and the request's body, a JSON object.
    pub fn new(key: String, body: &[u8]) -> Self {
        use sha2::Digest;
        let mut fields: serde_json::Map<_, _> = serde_json::from_slice(body).unwrap_or_default();
        fields.remove("password");
        let fields = serde_json::Value::Object(fields).to_string();
        Self { key, request: sha2::Sha256::digest(fields).into() }
    }
}

/// What an import does with a code that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Counts the row as failed.
    #[default]
    Fail,
    /// Leaves the link that is there.
    Skip,
    /// Replaces it; its clicks stay.
    Replace,
}

/// One row of an import or export: a link, and what only a copy of a link knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// The link.
    #[serde(flatten)]
    pub link: NewLink,
    /// When it was created; now where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub created_at: Option<Timestamp>,
    /// Clicks so far.
    #[serde(default)]
    pub clicks: u64,
    /// The argon2id hash of its password (PHC string); only in exports that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
}

/// What became of an imported batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// Rows that are now links.
    pub created: u64,
    /// Rows that replaced a link.
    pub replaced: u64,
    /// Rows left out because their code was taken.
    pub skipped: u64,
    /// Rows refused.
    pub failed: u64,
    /// The first refusals (at most 100): the row's number within the batch, from 0, and why.
    pub errors: Vec<(u64, String)>,
}

/// Clicks of one worker since its last flush.
#[derive(Clone, Debug, Default)]
pub struct ClickBatch {
    /// Referrer host names; a click names one by its index. Index 0 is the empty string: none.
    pub referrers: Vec<String>,
    /// The counts.
    pub clicks: Vec<Click>,
    /// The same by country, where that is looked up.
    pub countries: Vec<CountryClick>,
}

/// How often one link was followed on one day from one country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountryClick {
    /// [`Link::id`].
    pub link: i64,
    /// Days since the Unix epoch, UTC.
    pub day: i32,
    /// From where.
    pub country: Country,
    /// How often.
    pub count: u64,
}

impl ClickBatch {
    /// Clicks in all.
    pub fn total(&self) -> u64 {
        self.clicks.iter().map(|click| u64::from(click.count)).sum()
    }
}

/// How often one link was followed within one hour from one referrer by one kind of agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Click {
    /// [`Link::id`].
    pub link: i64,
    /// Hours since the Unix epoch.
    pub hour: i32,
    /// Index into [`ClickBatch::referrers`].
    pub referrer: u32,
    /// Who followed it.
    pub agent: Agent,
    /// How often.
    pub count: u32,
}

impl Click {
    /// Days since the Unix epoch, UTC.
    pub fn day(&self) -> i32 {
        self.hour.div_euclid(HOURS)
    }
}

/// [`Route::max_clicks`] and [`Route::clicks`] of a link whose clicks are granted a few at a time, because other processes
/// answer it too: nothing is left of it until something is granted.
pub const LEASED: u64 = u64::MAX;

/// What came of asking for clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// So many may be answered.
    Granted(u64),
    /// There are none left, or no such limit.
    UsedUp,
}

/// What a redirect needs to know of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// [`Link::id`].
    pub id: i64,
    /// [`Link::target`].
    pub target: String,
    /// [`Link::status`].
    pub status: Status,
    /// [`Link::redirect`].
    pub redirect: RedirectStatus,
    /// [`Link::forward_query`].
    pub forward_query: bool,
    /// [`Link::not_before`].
    pub not_before: Option<Timestamp>,
    /// [`Link::expires_at`].
    pub expires_at: Option<Timestamp>,
    /// [`Link::max_clicks`].
    pub max_clicks: Option<u64>,
    /// [`Link::clicks`], where they are limited.
    pub clicks: u64,
    /// The argon2id hash of the password (PHC string).
    pub password_hash: Option<String>,
}

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    /// By creation.
    #[default]
    Created,
    /// By last edit.
    Updated,
    /// By clicks.
    Clicks,
    /// By code, bytewise; where there are several domains, domain by domain, the default one first.
    Code,
}

/// A list query.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only links whose code, target or title contains this text, whatever its ASCII case.
    pub search: Option<String>,
    /// Only links with this tag.
    pub tag: Option<String>,
    /// Only links of this status.
    pub status: Option<Status>,
    /// Only links at these domains.
    pub domains: InDomains,
    /// The order.
    pub sort: Sort,
    /// Whether the greatest comes first.
    pub descending: bool,
    /// At most this many links; 1 to 1,000.
    pub limit: usize,
    /// [`Page::next`] of the page before.
    pub cursor: Option<String>,
    /// How long to look for what no index finds, two seconds at most and unless given. What is found by then is the page.
    pub within: Option<Duration>,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page {
    /// The links.
    pub links: Vec<Link>,
    /// The cursor of the next page; none on the last.
    pub next: Option<String>,
    /// How many links were looked at, where the time was over before the page was full.
    pub looked_at: Option<u64>,
}

/// Whose clicks are summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsScope {
    /// Those of one link.
    Link(LinkKey),
    /// Those of all links, also of those deleted since.
    All,
    /// Those of the links that there are at these domains.
    Domains(Vec<DomainId>),
}

impl From<Option<&str>> for StatsScope {
    /// The link of this code at the default domain, or all.
    fn from(code: Option<&str>) -> Self {
        code.map_or(Self::All, |code| Self::Link(code.into()))
    }
}

impl From<InDomains> for StatsScope {
    fn from(domains: InDomains) -> Self {
        match domains {
            InDomains::All => Self::All,
            InDomains::Only(domains) => Self::Domains(domains),
        }
    }
}

/// Clicks, summed several ways over the same days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Clicks in all.
    pub clicks: u64,
    /// By day (`2030-01-31`, UTC), oldest first, days without clicks left out.
    pub days: Vec<TimeCount>,
    /// By hour (`2030-01-31T05`, UTC), oldest first, hours without clicks left out: where they were asked for, and of the hours
    /// that are still told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<TimeCount>,
    /// By referrer host, most first, at most 100; the empty name is a visit without one.
    pub referrers: Vec<Count>,
    /// By kind of agent, most first.
    pub agents: Vec<Count>,
    /// By country (ISO 3166-1 alpha-2), most first; the empty name is an address of which none is known. Only of clicks while
    /// countries were looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<Count>,
    /// Days too old to be told apart, which are in all sums but that by day; none where not all of them were asked for.
    #[serde(default)]
    pub older: Option<Older>,
}

/// Days too old to be told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Older {
    /// The first of them (`2030-01-31`, UTC).
    pub from: String,
    /// The last of them.
    pub to: String,
    /// Clicks of all of them.
    pub clicks: u64,
}

/// Where folding old days, or forgetting old hours, goes on; from the beginning by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldCursor(pub(super) i64);

/// One line of a breakdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    /// What was counted.
    pub name: String,
    /// How often.
    pub clicks: u64,
}

/// Clicks of a day, or of an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimeCount {
    /// Which.
    pub name: String,
    /// How often, by everybody.
    pub clicks: u64,
    /// How often of these by known bots.
    #[serde(default)]
    pub bots: u64,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
}

/// A token to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// For people.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// The domains it is for; for all where absent.
    pub domains: Option<Vec<DomainId>>,
    /// When it ends; never where absent.
    pub expires_at: Option<Timestamp>,
}

/// What the bearer of a token may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token's number; none where an issuer vouches for its bearer.
    pub id: Option<i64>,
    /// Its name, or its bearer's.
    pub name: String,
    /// Read, or write too.
    pub scope: Scope,
    /// At which domains.
    pub domains: InDomains,
    /// When that ends; where an issuer vouches for its bearer, its token says so.
    pub expires_at: Option<Timestamp>,
    /// As [`TokenInfo::last_used_at`].
    pub last_used_at: Option<Timestamp>,
}

/// A token as the store lists it; the secret itself is shown once, at creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// What it is revoked by.
    pub id: i64,
    /// For people.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// The domains it is for, those deleted since left out; absent where it is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ends; absent where it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to a minute; absent where it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// How far an online backup has come, in database pages.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// Pages in all.
    pub total: u64,
}
