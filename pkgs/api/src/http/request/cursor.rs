//! Cursors: where a page of a list starts, as opaque text.
//!
//! A cursor is a version, the place in the order, and a check over these and the list's query, in base64url. The check
//! is not a secret: a cursor reveals nothing beyond its list, and inventing one gains nothing. It keeps cursors from
//! being used with another filter or order, where they would silently skip users.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::store::{Filter, Position, Sort, SortKey};
use crate::user::UserId;

/// The first byte of a cursor. Another layout has another number.
const VERSION: u8 = 1;

/// Bytes of the check.
const CHECK: usize = 8;

/// The longest cursor, in characters: it contains a name of 200 characters of 4 bytes, twice as long in lower case.
pub const MAX_CHARS: usize = 2304;

/// The error of a text that is not a cursor of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not of this list")]
pub struct InvalidCursor;

/// The cursor of a position in a list.
pub fn encode(position: &Position, filter: &Filter, sort: Sort) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(position.id.0.as_bytes());
    match &position.key {
        SortKey::Time(micros) => {
            bytes.push(0);
            bytes.extend_from_slice(&micros.to_be_bytes());
        }
        SortKey::Text(text) => {
            bytes.push(1);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    let check = check(&bytes, filter, sort);
    bytes.extend_from_slice(&check);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The position of a cursor in a list.
///
/// # Errors
/// When it is a cursor of another list, or not a cursor.
pub fn decode(cursor: &str, filter: &Filter, sort: Sort) -> Result<Position, InvalidCursor> {
    if cursor.len() > MAX_CHARS {
        return Err(InvalidCursor);
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| InvalidCursor)?;
    let (bytes, found) = bytes.split_last_chunk::<CHECK>().ok_or(InvalidCursor)?;
    if *found != check(bytes, filter, sort) {
        return Err(InvalidCursor);
    }
    let (&[version], bytes) = bytes.split_first_chunk::<1>().ok_or(InvalidCursor)?;
    let (id, bytes) = bytes.split_first_chunk::<16>().ok_or(InvalidCursor)?;
    let (&[kind], key) = bytes.split_first_chunk::<1>().ok_or(InvalidCursor)?;
    let key = match (version, kind) {
        (VERSION, 0) => SortKey::Time(i64::from_be_bytes(key.try_into().map_err(|_| InvalidCursor)?)),
        // No sort key contains U+0000, which PostgreSQL refuses.
        (VERSION, 1) if !key.contains(&0) => {
            SortKey::Text(String::from_utf8(key.to_vec()).map_err(|_| InvalidCursor)?)
        }
        _ => return Err(InvalidCursor),
    };
    let timed = matches!(key, SortKey::Time(_));
    let by_time = matches!(sort.by, crate::store::SortBy::CreatedAt | crate::store::SortBy::UpdatedAt);
    if timed != by_time {
        return Err(InvalidCursor);
    }
    Ok(Position { key, id: UserId(Uuid::from_bytes(*id)) })
}

fn check(bytes: &[u8], filter: &Filter, sort: Sort) -> [u8; CHECK] {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(bytes);
    add(format!("{sort:?}").as_bytes());
    add(format!("{filter:?}").as_bytes());
    let digest = hash.finalize();
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SortBy;
    use crate::user::Status;
    use proptest::prelude::*;

    fn positions() -> impl Strategy<Value = (Position, Sort)> {
        let key = prop_oneof![
            any::<i64>().prop_map(|micros| (SortKey::Time(micros), SortBy::CreatedAt)),
            "\\PC{0,200}".prop_map(|text| (SortKey::Text(text.to_lowercase()), SortBy::Name)),
        ];
        (key, any::<u128>(), any::<bool>()).prop_map(|((key, by), id, descending)| {
            (Position { key, id: UserId(Uuid::from_u128(id)) }, Sort { by, descending })
        })
    }

    #[test]
    fn a_cursor_has_no_text_that_a_database_refuses() {
        let (filter, sort) = (Filter::default(), Sort { by: SortBy::Name, descending: false });
        for (text, is_taken) in [("a", true), ("", true), ("\0", false), ("a\0b", false)] {
            let position = Position { key: SortKey::Text(text.to_owned()), id: UserId::generate() };
            let cursor = encode(&position, &filter, sort);
            assert_eq!(decode(&cursor, &filter, sort).is_ok(), is_taken, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_cursor_leads_back_to_its_position((position, sort) in positions()) {
            let filter = Filter::default();
            let cursor = encode(&position, &filter, sort);
            prop_assert!(cursor.len() <= MAX_CHARS);
            prop_assert_eq!(decode(&cursor, &filter, sort), Ok(position));
        }

        #[test]
        fn a_cursor_that_was_changed_is_none((position, sort) in positions(), at in any::<prop::sample::Index>(), other in "[A-Za-z0-9_-]") {
            let filter = Filter::default();
            let cursor = encode(&position, &filter, sort);
            let mut changed = cursor.clone();
            let at = at.index(cursor.len());
            changed.replace_range(at..=at, &other);
            prop_assume!(changed != cursor);
            prop_assert_eq!(decode(&changed, &filter, sort), Err(InvalidCursor));
            prop_assert_eq!(decode(&cursor[..at], &filter, sort), Err(InvalidCursor));
        }

        #[test]
        fn noise_is_no_cursor(noise in "\\PC{0,60}") {
            prop_assert_eq!(decode(&noise, &Filter::default(), Sort::default()), Err(InvalidCursor));
        }

        #[test]
        fn a_cursor_is_of_one_list((position, sort) in positions()) {
            let filter = Filter::default();
            let cursor = encode(&position, &filter, sort);
            let active = Filter { status: Some(Status::Active), ..Filter::default() };
            prop_assert_eq!(decode(&cursor, &active, sort), Err(InvalidCursor));
            let reversed = Sort { descending: !sort.descending, ..sort };
            prop_assert_eq!(decode(&cursor, &filter, reversed), Err(InvalidCursor));
        }
    }
}
