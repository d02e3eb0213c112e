//! The stored answer to a request that is executed once: each user's id, version and representation.

use bytes::{Buf, BufMut, Bytes};
use uuid::Uuid;

use crate::user::{Record, UserId};

/// Bytes before a representation: id, version, length.
const HEAD: usize = 16 + 8 + 4;

/// As bytes.
pub fn encode(records: &[Record]) -> Vec<u8> {
    let size = records.iter().map(|record| HEAD + record.body.len()).sum();
    let mut bytes = Vec::with_capacity(size);
    for Record { id, version, body } in records {
        bytes.put_slice(id.0.as_bytes());
        bytes.put_i64(*version);
        bytes.put_u32(u32::try_from(body.len()).expect("a representation is far below 4 GiB"));
        bytes.put_slice(body);
    }
    bytes
}

/// Decodes it; None if [`encode`] did not make it.
pub fn decode(bytes: Vec<u8>) -> Option<Vec<Record>> {
    let mut bytes = Bytes::from(bytes);
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let id = UserId(Uuid::from_u128(bytes.try_get_u128().ok()?));
        let version = bytes.try_get_i64().ok()?;
        let length = bytes.try_get_u32().ok()? as usize;
        if length > bytes.len() {
            return None;
        }
        records.push(Record { id, version, body: bytes.split_to(length) });
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_whole_or_not_at_all() {
        let record = |body: &'static str| Record { id: UserId::generate(), version: 7, body: body.into() };
        let records = vec![record("{}"), record(""), record(r#"{"a":1}"#)];
        let bytes = encode(&records);
        assert_eq!(decode(bytes[..bytes.len() - 1].into()), None);
        assert_eq!(decode(bytes), Some(records));
        assert_eq!(decode(Vec::new()), Some(Vec::new()));
    }
}
