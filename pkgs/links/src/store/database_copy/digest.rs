//! Checksums of tables.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::tables::Value;

/// The number of a table's rows, and the SHA-256 over them in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The number of rows.
    pub rows: u64,
    /// The SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// Computes a digest row by row.
#[derive(Default)]
pub struct Digester {
    rows: u64,
    hash: Sha256,
    /// The bytes of one row.
    bytes: Vec<u8>,
}

impl Digester {
    /// Adds a row: for each value its kind, length and bytes, so that different rows have different bytes.
    pub fn add(&mut self, row: &[Value]) {
        self.bytes.clear();
        for value in row {
            let (kind, bytes): (u8, &[u8]) = match value {
                Value::Null => (0, &[]),
                Value::Number(number) => (1, &number.to_le_bytes()),
                Value::Text(text) => (2, text.as_bytes()),
                Value::Bytes(bytes) => (3, bytes),
            };
            self.bytes.push(kind);
            self.bytes.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.bytes.extend_from_slice(bytes);
        }
        self.hash.update(&self.bytes);
        self.rows += 1;
    }

    /// The digest of all added rows.
    pub fn finish(self) -> Digest {
        Digest { rows: self.rows, sha256: HEXLOWER.encode(&self.hash.finalize()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_have_another_digest() {
        let text = |text: &str| Value::Text(text.to_owned());
        let tables: [&[&[Value]]; 7] = [
            &[],
            &[&[]],
            &[&[text("ab"), text("c")]],
            &[&[text("a"), text("bc")]],
            &[&[Value::Null, Value::Number(1)]],
            &[&[Value::Number(1), Value::Null]],
            &[&[Value::Bytes(b"ab".to_vec()), text("c")]],
        ];
        let digest = |rows: &[&[Value]]| {
            let mut digester = Digester::default();
            rows.iter().for_each(|row| digester.add(row));
            digester.finish()
        };
        for (index, rows) in tables.iter().enumerate() {
            assert_eq!(digest(rows), digest(rows));
            for other in &tables[..index] {
                assert_ne!(digest(rows), digest(other), "{rows:?} {other:?}");
            }
        }
    }
}
