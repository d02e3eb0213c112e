//! The stored form of a user, which is sent unchanged.

use std::io::Write;

use bytes::Bytes;
use jiff::Timestamp;

use super::UserId;

/// Enough bytes for what precedes a document: an id, a version of up to 19 digits, and two times.
const HEAD: usize = 192;

/// A stored user. The representation is written once, together with the user, and every read sends those bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The user's id.
    pub id: UserId,
    /// How often the user was written, from 1; its `ETag`.
    pub version: i64,
    /// The JSON that is sent: `id`, `version`, `created_at` and `updated_at`, followed by the document.
    pub body: Bytes,
}

impl Record {
    /// Writes the representation; `document` is the document as JSON.
    pub fn new(
        id: UserId,
        version: i64,
        created_at: Timestamp,
        updated_at: Timestamp,
        document: &[u8],
    ) -> Self {
        let mut body = Vec::with_capacity(HEAD + document.len());
        write!(
            body,
            r#"{{"id":"{id}","version":{version},"created_at":"{created_at}","updated_at":"{updated_at}""#
        )
        .expect("a vector takes all that is written");
        let brace = body.len();
        body.extend_from_slice(document);
        // Replaces the document's opening brace. An email always follows it.
        body[brace] = b',';
        Self { id, version, body: body.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_representation_is_the_document_with_what_the_service_knows() {
        let id: UserId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().expect("an id");
        let time = |microseconds| Timestamp::from_microsecond(microseconds).expect("an instant");
        let record = Record::new(id, 3, time(1_000_000), time(1_500_000), br#"{"email":"a@b.c","odd":[1]}"#);
        assert_eq!(
            String::from_utf8_lossy(&record.body),
            r#"{"id":"01890a5d-ac96-774b-bcce-b302099a8057","version":3,"created_at":"1970-01-01T00:00:01Z","updated_at":"1970-01-01T00:00:01.5Z","email":"a@b.c","odd":[1]}"#
        );
    }
}
