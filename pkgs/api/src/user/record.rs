//! What is stored, and sent as it is.

use std::io::Write;

use bytes::Bytes;
use jiff::Timestamp;

use super::{Document, UserId};

/// Bytes that most representations fit in.
const USUAL: usize = 2_560;

/// A user as stored: the representation is written once, when the user is, and every read sends those bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub id: UserId,
    /// How often the user has been written, from 1. Its `ETag`.
    pub version: i64,
    /// The JSON that is sent: the document with `id`, `version`, `created_at` and `updated_at` before it.
    pub body: Bytes,
}

impl Record {
    /// Writes the representation.
    ///
    /// # Errors
    /// None that a document read from JSON can meet.
    pub fn new(
        id: UserId,
        version: i64,
        created_at: Timestamp,
        updated_at: Timestamp,
        user: &Document,
    ) -> Result<Self, sonic_rs::Error> {
        let mut body = Vec::with_capacity(USUAL);
        write!(
            body,
            r#"{{"id":"{id}","version":{version},"created_at":"{created_at}","updated_at":"{updated_at}""#
        )
        .expect("a vector takes all that is written");
        let brace = body.len();
        sonic_rs::to_writer(&mut body, user)?;
        // An email is always there to follow the comma.
        body[brace] = b',';
        Ok(Self { id, version, body: body.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::{Preferences, Status};

    #[test]
    fn the_representation_is_the_document_with_what_the_service_knows() {
        let user = Document {
            email: "a@b.c".into(),
            name: "A".into(),
            status: Status::Active,
            profile: None,
            addresses: Vec::new(),
            tags: vec!["x".into()],
            preferences: Preferences::new(),
            more: [("odd".to_owned(), serde_json::json!([1]))].into_iter().collect(),
        };
        let id: UserId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().expect("an id");
        let time = |microseconds| Timestamp::from_microsecond(microseconds).expect("an instant");
        let record = Record::new(id, 3, time(1_000_000), time(1_500_000), &user).expect("it serialises");
        assert_eq!(
            String::from_utf8_lossy(&record.body),
            r#"{"id":"01890a5d-ac96-774b-bcce-b302099a8057","version":3,"created_at":"1970-01-01T00:00:01Z","updated_at":"1970-01-01T00:00:01.5Z","email":"a@b.c","name":"A","status":"active","tags":["x"],"odd":[1]}"#
        );
    }
}
