//! The store's input and output.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::Agent;
use crate::country::Country;
use crate::domains::{DomainId, InDomains, LinkKey};
use crate::link::{Link, NewLink, RedirectStatus, Status};
use crate::when::{HOURS, Timestamp};

/// The result of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The link as stored.
    pub link: Link,
    /// Whether an earlier request with the same idempotency key created it.
    pub replayed: bool,
}

/// A client's promise that a repeat with this key is the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key.
    pub key: String,
    /// SHA-256 of the request's fields as sent, since a span such as `7d` has another value each time it is parsed. The
    /// password is left out, since a quick search could find it from the hash.
    pub request: [u8; 32],
}

impl IdempotencyKey {
    /// From a key and the request's body, a JSON object.
    pub fn new(key: String, body: &[u8]) -> Self {
        use sha2::Digest;
        let mut fields: serde_json::Map<_, _> = serde_json::from_slice(body).unwrap_or_default();
        fields.remove("password");
        let fields = serde_json::Value::Object(fields).to_string();
        Self { key, request: sha2::Sha256::digest(fields).into() }
    }
}

/// What an import does if a code is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Counts the row as failed.
    #[default]
    Fail,
    /// Keeps the existing link.
    Skip,
    /// Replaces it; its clicks stay.
    Replace,
}

/// A row of an import or export: a link with the data that only a copy has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// The link.
    #[serde(flatten)]
    pub link: NewLink,
    /// When it was created; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub created_at: Option<Timestamp>,
    /// Clicks so far.
    #[serde(default)]
    pub clicks: u64,
    /// The argon2id hash of its password (PHC string), only in exports that request it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
}

/// The result of an imported batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// Rows that became links.
    pub created: u64,
    /// Rows that replaced a link.
    pub replaced: u64,
    /// Rows skipped because their code was taken.
    pub skipped: u64,
    /// Rows refused.
    pub failed: u64,
    /// The first refusals, at most 100: the row's number within the batch, from 0, and the reason.
    pub errors: Vec<(u64, String)>,
}

/// Clicks of one worker since its last flush.
#[derive(Clone, Debug, Default)]
pub struct ClickBatch {
    /// Referrer host names, which clicks refer to by index. Index 0 is the empty string, for none.
    pub referrers: Vec<String>,
    /// The counts.
    pub clicks: Vec<Click>,
    /// The counts by country, if countries are counted.
    pub countries: Vec<CountryClick>,
}

/// How often a link was followed on a day from a country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountryClick {
    /// [`Link::id`].
    pub link: i64,
    /// Days since the Unix epoch, UTC.
    pub day: i32,
    /// The country.
    pub country: Country,
    /// The number of clicks.
    pub count: u64,
}

impl ClickBatch {
    /// The sum of all clicks.
    pub fn total(&self) -> u64 {
        self.clicks.iter().map(|click| u64::from(click.count)).sum()
    }
}

/// How often a link was followed within an hour from a referrer by a kind of agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Click {
    /// [`Link::id`].
    pub link: i64,
    /// Hours since the Unix epoch.
    pub hour: i32,
    /// Index into [`ClickBatch::referrers`].
    pub referrer: u32,
    /// The kind of agent.
    pub agent: Agent,
    /// The number of clicks.
    pub count: u32,
}

impl Click {
    /// Days since the Unix epoch, UTC.
    pub fn day(&self) -> i32 {
        self.hour.div_euclid(HOURS)
    }
}

/// The value of [`Route::max_clicks`] and [`Route::clicks`] for a link whose clicks are granted a few at a time, since
/// other processes answer it too. With both set to this value, no clicks are left until some are granted.
pub const LEASED: u64 = u64::MAX;

/// The result of requesting clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// This process may answer this many clicks.
    Granted(u64),
    /// No clicks are left, or the link has no limit.
    UsedUp,
}

/// The data of a redirect.
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
    /// [`Link::clicks`], if the link has a click limit.
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
    /// By code, bytewise. With several domains, domain by domain, the default one first.
    Code,
}

/// A list query.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only links whose code, target or title contains this text, in any ASCII case.
    pub search: Option<String>,
    /// Only links with this tag.
    pub tag: Option<String>,
    /// Only links with this status.
    pub status: Option<Status>,
    /// Only links of these domains.
    pub domains: InDomains,
    /// The order.
    pub sort: Sort,
    /// Whether the greatest comes first.
    pub descending: bool,
    /// The most links, 1 to 1,000. A page has fewer once their texts exceed 1 MiB.
    pub limit: usize,
    /// [`Page::next`] of the previous page.
    pub cursor: Option<String>,
    /// How long to search without an index: at most two seconds, which is the default. The page contains what is found
    /// by then.
    pub within: Option<Duration>,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page {
    /// The links.
    pub links: Vec<Link>,
    /// The cursor of the next page; none on the last.
    pub next: Option<String>,
    /// How many links were examined, if the time was up before the page was full.
    pub looked_at: Option<u64>,
}

/// The links whose clicks are summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsScope {
    /// One link.
    Link(LinkKey),
    /// All links, including deleted ones.
    All,
    /// The current links of these domains.
    Domains(Vec<DomainId>),
}

impl From<Option<&str>> for StatsScope {
    /// The link with this code at the default domain, or all.
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

/// Clicks, summed in several ways over the same days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// All clicks.
    pub clicks: u64,
    /// By day (`2030-01-31`, UTC), oldest first, without days that have no clicks.
    pub days: Vec<TimeCount>,
    /// By hour (`2030-01-31T05`, UTC), oldest first, without hours that have no clicks; if requested, and as far as
    /// hours are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<TimeCount>,
    /// By referrer host, most clicks first, at most 100. The empty name means no referrer.
    pub referrers: Vec<Count>,
    /// By kind of agent, most clicks first.
    pub agents: Vec<Count>,
    /// By country (ISO 3166-1 alpha-2), most clicks first. The empty name means unknown. Only clicks from times when
    /// countries were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<Count>,
    /// Merged old days, which are in all sums except that by day. None if the request does not cover all of them.
    #[serde(default)]
    pub older: Option<Older>,
}

/// Old days that were merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Older {
    /// The first of them (`2030-01-31`, UTC).
    pub from: String,
    /// The last of them.
    pub to: String,
    /// Their clicks.
    pub clicks: u64,
}

/// Where to continue merging old days or deleting old hours; by default from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldCursor(pub(super) i64);

/// A line of a breakdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    /// What was counted.
    pub name: String,
    /// The number of clicks.
    pub clicks: u64,
}

/// Clicks of a day or an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimeCount {
    /// The day or hour.
    pub name: String,
    /// All clicks.
    pub clicks: u64,
    /// Clicks of known bots among them.
    #[serde(default)]
    pub bots: u64,
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
}

/// A token to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Its name, for people.
    pub name: String,
    /// Its rights.
    pub scope: Scope,
    /// The domains that it is for; all if absent.
    pub domains: Option<Vec<DomainId>>,
    /// When it expires; never if absent.
    pub expires_at: Option<Timestamp>,
}

/// The rights of a token's bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token's id; `None` for a token from an OpenID Connect issuer.
    pub id: Option<i64>,
    /// The token's id, or a negative number that tells this bearer of an issuer's token from others.
    pub client: i64,
    /// The name of the token, or of its bearer.
    pub name: String,
    /// Whether it may write.
    pub scope: Scope,
    /// The domains that it is for.
    pub domains: InDomains,
    /// When it expires. A token from an issuer carries this time itself.
    pub expires_at: Option<Timestamp>,
    /// As [`TokenInfo::last_used_at`].
    pub last_used_at: Option<Timestamp>,
}

/// A token in a list. Its secret is shown only once, at creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// The id, for revoking it.
    pub id: i64,
    /// Its name, for people.
    pub name: String,
    /// Its rights.
    pub scope: Scope,
    /// The domains that it is for, without deleted ones; absent if for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it expires; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to a minute; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// The progress of an online backup, in database pages.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// All pages.
    pub total: u64,
}
