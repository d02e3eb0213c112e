//! A user as a row: what is sent, and what users are found and ordered by.

use jiff::Timestamp;

use crate::user::{Document, Record, Status, UserId};

use super::words;

/// A user as a row.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is sent.
    pub record: Record,
    /// The email in lower case: no two users have the same.
    pub email: String,
    /// The name in lower case, to sort by.
    pub name: String,
    /// Whether the user may do anything.
    pub status: Status,
    /// When the user was created, in microseconds since the Unix epoch.
    pub created_at: i64,
    /// When the user was last written, likewise.
    pub updated_at: i64,
    /// Each once, in no order.
    pub tags: Vec<String>,
    /// What a search finds the user by.
    pub words: Vec<String>,
}

impl Entry {
    /// A user that begins now.
    pub fn new(user: &Document) -> Result<Self, sonic_rs::Error> {
        let now = now();
        Self::at(UserId::generate(), 1, now, now, user)
    }

    /// A user at a version.
    ///
    /// # Errors
    /// None that a document read from JSON can meet.
    pub fn at(
        id: UserId,
        version: i64,
        created_at: i64,
        updated_at: i64,
        user: &Document,
    ) -> Result<Self, sonic_rs::Error> {
        let mut tags: Vec<String> = user.tags.iter().map(|tag| self::tag(tag)).collect();
        tags.retain(|tag| !tag.is_empty());
        tags.sort_unstable();
        tags.dedup();
        Ok(Self {
            record: Record::new(id, version, time(created_at), time(updated_at), user)?,
            email: fold(&user.email),
            name: fold(&user.name),
            status: user.status,
            created_at,
            updated_at,
            tags,
            words: words::of(user).into_iter().collect(),
        })
    }
}

/// Now, as it is stored.
pub fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// An instant as it is stored.
pub fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}

/// Without regard to case.
pub fn fold(text_as_given: &str) -> String {
    text(&text_as_given.to_lowercase())
}

/// As every database can store it: PostgreSQL's text knows no NUL
/// (postgresql.org/docs/current/datatype-character.html).
pub fn text(as_given: &str) -> String {
    as_given.replace('\0', "\u{fffd}")
}

/// Between tags, and between words, where several are one text. No tag holds it.
pub const SEPARATOR: char = '\u{1f}';

/// A tag as every database can store it.
pub fn tag(as_given: &str) -> String {
    text(as_given).replace(SEPARATOR, "\u{fffd}")
}

/// The number a status is stored as.
pub fn number(status: Status) -> i16 {
    match status {
        Status::Active => 0,
        Status::Invited => 1,
        Status::Suspended => 2,
    }
}
