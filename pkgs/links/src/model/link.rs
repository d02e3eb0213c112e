//! Links: as stored, as created by a client, and as changed by a client.

use serde::{Deserialize, Serialize};
use service::password;
use utoipa::ToSchema;

use crate::domains::DomainId;
use crate::invalid::InvalidField;
use crate::patch::present;
use crate::when::Timestamp;

/// The longest title, in characters.
const TITLE: usize = 200;

/// The most tags of one link.
const TAGS: usize = 16;

/// The longest tag, in characters.
const TAG: usize = 32;

/// The redirect status of a link (RFC 9110, section 15.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub enum RedirectStatus {
    /// 301: permanent, the method may become GET.
    MovedPermanently,
    /// 302: temporary, the method may become GET.
    Found,
    /// 307: temporary, the method stays. The default, since every visit returns to be counted.
    #[default]
    TemporaryRedirect,
    /// 308: permanent, the method stays.
    PermanentRedirect,
}

/// Whether a link answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Redirects, within its dates and click limit.
    #[default]
    Active,
    /// Is kept, but answers 404 as if it did not exist.
    Disabled,
}

/// A link as stored. Its password's hash stays in the store; `protected` says whether there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Its number in the order of creation, used in every list's cursor. Not part of the API.
    #[serde(skip)]
    pub id: i64,
    /// Its domain's id in the database. Not part of the API.
    #[serde(skip)]
    pub domain_id: DomainId,
    /// Its domain; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "go.example")]
    pub domain: Option<String>,
    /// The part of the short URL after the host.
    #[schema(example = "q7Hk2mZ")]
    pub code: String,
    /// Where it redirects to.
    #[schema(example = "https://example.com/a/long/way")]
    pub target: String,
    /// For people; at most 200 characters.
    pub title: Option<String>,
    /// Sorted, without repeats; at most 16, each of at most 32 characters.
    pub tags: Vec<String>,
    /// Whether the link answers.
    pub status: Status,
    /// The redirect's status code.
    #[schema(value_type = u16, example = 307)]
    pub redirect: RedirectStatus,
    /// Whether the visit's query string is appended to the target's.
    pub forward_query: bool,
    /// Whether a visitor must give a password.
    pub protected: bool,
    /// The end of that password's hash, which tells one password from the next. Not part of the API.
    #[serde(skip)]
    pub password_end: Option<String>,
    /// 404 before this instant.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_before: Option<Timestamp>,
    /// 410 from this instant on.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// 410 after this many clicks. A HEAD is not a click, nor is a visit by a known bot, such as a chat preview: both
    /// get 200 with a page that does not show the target.
    pub max_clicks: Option<u64>,
    /// Clicks flushed so far; at most one flush interval behind.
    pub clicks: u64,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was last edited. Clicks are not edits.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// What a client sends to create a link. Only `target` is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLink {
    /// Its domain; the default one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// A custom code; a random one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Where it redirects to.
    pub target: String,
    /// See [`Link::title`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// See [`Link::tags`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// See [`Link::status`].
    #[serde(default)]
    pub status: Status,
    /// See [`Link::redirect`].
    #[serde(default)]
    #[schema(value_type = u16, example = 307)]
    pub redirect: RedirectStatus,
    /// See [`Link::forward_query`].
    #[serde(default)]
    pub forward_query: bool,
    /// In clear text; stored as an argon2id hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// RFC 3339, or a span from now such as `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::when::deserialize")]
    #[schema(value_type = Option<String>)]
    pub not_before: Option<Timestamp>,
    /// RFC 3339, or a span from now such as `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::when::deserialize")]
    #[schema(value_type = Option<String>)]
    pub expires_at: Option<Timestamp>,
    /// See [`Link::max_clicks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clicks: Option<u64>,
}

/// A merge patch (RFC 7396) of a link: an absent field stays, `null` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkPatch {
    /// A new target; cannot be cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// See [`Link::title`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub title: Option<Option<String>>,
    /// Replaces all tags. It cannot be `null`; `[]` clears it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// See [`Link::status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// See [`Link::redirect`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>)]
    pub redirect: Option<RedirectStatus>,
    /// See [`Link::forward_query`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_query: Option<bool>,
    /// In clear text; `null` removes the protection.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub password: Option<Option<String>>,
    /// RFC 3339, or a span from now such as `7d`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::when::deserialize_present"
    )]
    #[schema(value_type = Option<String>)]
    pub not_before: Option<Option<Timestamp>>,
    /// RFC 3339, or a span from now such as `7d`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::when::deserialize_present"
    )]
    #[schema(value_type = Option<String>)]
    pub expires_at: Option<Option<Timestamp>>,
    /// See [`Link::max_clicks`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub max_clicks: Option<Option<u64>>,
}

/// The same change for many links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyPatch {
    /// The fields to set on each.
    #[serde(default)]
    pub set: LinkPatch,
    /// Tags to add to each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_tags: Vec<String>,
    /// Tags to remove from each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_tags: Vec<String>,
}

impl RedirectStatus {
    /// The status code.
    pub const fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }
}

impl From<RedirectStatus> for u16 {
    fn from(status: RedirectStatus) -> Self {
        status.code()
    }
}

impl TryFrom<u16> for RedirectStatus {
    type Error = &'static str;

    fn try_from(code: u16) -> Result<Self, Self::Error> {
        match code {
            301 => Ok(Self::MovedPermanently),
            302 => Ok(Self::Found),
            307 => Ok(Self::TemporaryRedirect),
            308 => Ok(Self::PermanentRedirect),
            _ => Err("a redirect is 301, 302, 307 or 308"),
        }
    }
}

impl NewLink {
    /// Normalises and checks everything except code and target, which have their own rules.
    pub(crate) fn check(&mut self) -> Result<(), InvalidField> {
        self.title = title(self.title.take())?;
        self.tags = tags(std::mem::take(&mut self.tags))?;
        self.max_clicks = max_clicks(self.max_clicks)?;
        dates(self.not_before, self.expires_at)?;
        if let Some(password) = &self.password {
            password::check(password).map_err(|why| InvalidField::new("password", why))?;
        }
        Ok(())
    }
}

/// A title as stored: trimmed, and `None` if it is empty.
pub(crate) fn title(title: Option<String>) -> Result<Option<String>, InvalidField> {
    let Some(title) = title else { return Ok(None) };
    let title = title.trim();
    if title.chars().any(char::is_control) {
        return Err(InvalidField::new("title", "a title has no control characters"));
    }
    if title.chars().count() > TITLE {
        return Err(InvalidField::new("title", format_args!("a title has at most {TITLE} characters")));
    }
    Ok((!title.is_empty()).then(|| title.to_owned()))
}

/// Tags as stored: sorted, without repeats.
pub(crate) fn tags(mut tags: Vec<String>) -> Result<Vec<String>, InvalidField> {
    for tag in &tags {
        if !(1..=TAG).contains(&tag.chars().count()) {
            return Err(InvalidField::new("tags", format_args!("a tag has 1 to {TAG} characters")));
        }
        if let Some(c) = tag.chars().find(|&c| !c.is_alphanumeric() && !"-_.".contains(c)) {
            let why = format_args!("a tag has only letters, digits, '-', '_' and '.'; not {c:?}");
            return Err(InvalidField::new("tags", why));
        }
    }
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > TAGS {
        return Err(InvalidField::new("tags", format_args!("a link has at most {TAGS} tags")));
    }
    Ok(tags)
}

/// A click limit as stored: at least 1, and within SQLite's integers.
pub(crate) fn max_clicks(limit: Option<u64>) -> Result<Option<u64>, InvalidField> {
    match limit {
        Some(0) => Err(InvalidField::new("max_clicks", "a click limit is at least 1")),
        Some(limit) if i64::try_from(limit).is_err() => {
            Err(InvalidField::new("max_clicks", format_args!("a click limit is at most {}", i64::MAX)))
        }
        limit => Ok(limit),
    }
}

/// Refuses dates between which a link would never answer.
pub(crate) fn dates(
    not_before: Option<Timestamp>,
    expires_at: Option<Timestamp>,
) -> Result<(), InvalidField> {
    match (not_before, expires_at) {
        (Some(start), Some(end)) if end <= start => {
            Err(InvalidField::new("expires_at", "a link expires after its not_before"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The field that a check refuses, if any.
    fn field<T>(result: Result<T, InvalidField>) -> Option<&'static str> {
        result.err().map(|error| error.field)
    }

    #[test]
    fn titles_are_trimmed_and_bounded() {
        let longest = "\u{fc}".repeat(TITLE);
        for (text, stored) in
            [("", None), (" \t\n", None), (" a b ", Some("a b")), (&longest, Some(&*longest))]
        {
            assert_eq!(title(Some(text.to_owned())).unwrap().as_deref(), stored, "{text:?}");
        }
        assert_eq!(title(None).unwrap(), None);
        for text in [format!("{longest}x"), "a\nb".to_owned(), "a\u{9b}b".to_owned()] {
            assert_eq!(field(title(Some(text.clone()))), Some("title"), "{text:?}");
        }
    }

    #[test]
    fn tags_are_a_sorted_set() {
        let stored = tags(["b", "a.b", "B", "b", "\u{fc}-1_"].map(str::to_owned).into()).unwrap();
        assert_eq!(stored, ["B", "a.b", "b", "\u{fc}-1_"]);
    }

    #[test]
    fn tags_are_bounded() {
        let numbered = |count: usize| (0..count).map(|tag| tag.to_string()).collect::<Vec<_>>();
        let one = |tag: &str| vec![tag.to_owned()];
        for (given, sound) in [
            (vec![], true),
            (numbered(TAGS), true),
            (numbered(TAGS + 1), false),
            ([numbered(TAGS), numbered(TAGS)].concat(), true),
            (one(&"\u{fc}".repeat(TAG)), true),
            (one(&"x".repeat(TAG + 1)), false),
            (one(""), false),
            (one("a b"), false),
            (one(" a"), false),
            (one("a,b"), false),
            (one("a\n"), false),
        ] {
            assert_eq!(field(tags(given.clone())), (!sound).then_some("tags"), "{given:?}");
        }
    }

    #[test]
    fn a_click_limit_is_a_positive_sqlite_integer() {
        for (limit, sound) in [
            (None, true),
            (Some(0), false),
            (Some(1), true),
            (Some(i64::MAX as u64), true),
            (Some(i64::MAX as u64 + 1), false),
        ] {
            assert_eq!(field(max_clicks(limit)), (!sound).then_some("max_clicks"), "{limit:?}");
        }
    }

    #[test]
    fn a_link_expires_after_it_begins() {
        for (start, end, sound) in [
            (None, None, true),
            (Some(5), None, true),
            (None, Some(5), true),
            (Some(5), Some(6), true),
            (Some(5), Some(5), false),
            (Some(6), Some(5), false),
        ] {
            let found = field(dates(start.map(Timestamp), end.map(Timestamp)));
            assert_eq!(found, (!sound).then_some("expires_at"), "{start:?} {end:?}");
        }
    }

    #[test]
    fn a_new_link_is_normalised_or_refused_as_a_whole() {
        let mut link = NewLink {
            title: Some(" a ".to_owned()),
            tags: ["b", "a"].map(str::to_owned).into(),
            password: Some("x".to_owned()),
            ..NewLink::default()
        };
        link.check().unwrap();
        assert_eq!((link.title.as_deref(), link.tags), (Some("a"), vec!["a".to_owned(), "b".to_owned()]));
        for (mut link, refused) in [
            (NewLink { title: Some("\0".to_owned()), ..NewLink::default() }, "title"),
            (NewLink { tags: vec![String::new()], ..NewLink::default() }, "tags"),
            (NewLink { max_clicks: Some(0), ..NewLink::default() }, "max_clicks"),
            (
                NewLink {
                    not_before: Some(Timestamp(1)),
                    expires_at: Some(Timestamp(1)),
                    ..NewLink::default()
                },
                "expires_at",
            ),
            (NewLink { password: Some(String::new()), ..NewLink::default() }, "password"),
        ] {
            assert_eq!(field(link.check()), Some(refused));
        }
    }
}
