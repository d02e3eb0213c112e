//! A user as a row: what is sent, and the columns for searching and sorting.

use jiff::Timestamp;

use crate::user::{Document, Record, Status, UserId};

use super::tokenize;

/// Bytes of memory of a tag or a word: the text, its allocation and the pointer to that, rounded up.
const TEXT_BYTES: usize = 64;

/// Bytes of memory of a draft and its record besides document, tags and words, rounded up.
const DRAFT_BYTES: usize = 1024;

/// A user as a row, without what is only known when it is written.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The document as JSON.
    pub document: Vec<u8>,
    /// The email in lower case, which is unique.
    pub email: String,
    /// The name in lower case, to sort by.
    pub name: String,
    /// Whether the user is active.
    pub status: Status,
    /// Each tag once, in no order.
    pub tags: Vec<String>,
    /// The words for searching.
    pub words: Vec<String>,
}

impl Draft {
    /// The stored form of a document.
    ///
    /// # Errors
    /// Never for a document that was read from JSON.
    pub fn of(user: &Document<'_>) -> Result<Self, sonic_rs::Error> {
        let mut tags: Vec<String> = user.tags.iter().map(|tag| self::tag(tag)).collect();
        tags.retain(|tag| !tag.is_empty());
        tags.sort_unstable();
        tags.dedup();
        Ok(Self {
            document: sonic_rs::to_vec(user)?,
            email: fold(&user.email),
            name: fold(&user.name),
            status: user.status,
            tags,
            words: tokenize::words(user).into_iter().collect(),
        })
    }

    /// About how many bytes of memory these take, with their records, until they are written.
    pub fn bytes(users: &[Self]) -> u64 {
        let bytes = |user: &Self| {
            // The record repeats the document.
            2 * user.document.len() + TEXT_BYTES * (user.tags.len() + user.words.len()) + DRAFT_BYTES
        };
        users.iter().map(|user| bytes(user) as u64).sum()
    }

    /// New users. All have the same creation time, by which the stored answer of the request that created them is
    /// found.
    pub fn begin(users: Vec<Self>) -> Vec<Entry> {
        let now = now();
        users.into_iter().map(|user| user.at(UserId::generate(), 1, now, now)).collect()
    }

    /// A user at a version; times are in microseconds since the Unix epoch.
    pub fn at(self, id: UserId, version: i64, created_at: i64, updated_at: i64) -> Entry {
        let record = Record::new(id, version, time(created_at), time(updated_at), &self.document);
        Entry { record, created_at, updated_at, draft: self }
    }
}

/// A user as a row.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is sent.
    pub record: Record,
    /// When the user was created, in microseconds since the Unix epoch.
    pub created_at: i64,
    /// When the user was last written, likewise.
    pub updated_at: i64,
    /// The rest.
    pub draft: Draft,
}

/// The current time, as stored.
pub fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// A time, as stored.
pub fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}

/// Folds case.
pub fn fold(text_as_given: &str) -> String {
    text(&text_as_given.to_lowercase())
}

/// A text that every database can store: a text in PostgreSQL cannot contain NUL
/// (postgresql.org/docs/current/datatype-character.html).
pub fn text(as_given: &str) -> String {
    as_given.replace('\0', "\u{fffd}")
}

/// Separates several tags or words in one text. Tags do not contain it.
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
