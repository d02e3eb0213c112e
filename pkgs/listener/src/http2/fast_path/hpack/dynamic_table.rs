//! The dynamic table of HPACK (RFC 7541, sections 2.3.2 and 4).

use std::collections::VecDeque;

use crate::field_compression::section;

/// The size of a client's table and its maximum, in bytes: the default, since no setting changes it (RFC 9113, section
/// 6.5.2).
pub const MOST: usize = 4096;

/// A client's table. An empty one holds no memory.
#[derive(Debug)]
pub struct DynamicTable {
    /// Names and values of its entries, in order, after those of removed entries: less than [`MOST`] of each.
    text: Vec<u8>,
    /// How many bytes of text preceded these, modulo 2^32.
    before: u32,
    /// Its entries, oldest first.
    entries: VecDeque<Entry>,
    /// Its current size, and its maximum.
    size: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the name starts, counted over all text ever added. The value follows it.
    start: u32,
    name: u16,
    value: u16,
}

impl Entry {
    fn length(self) -> usize {
        usize::from(self.name) + usize::from(self.value)
    }
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self { text: Vec::new(), before: 0, entries: VecDeque::new(), size: 0, most: MOST }
    }
}

impl DynamicTable {
    /// The name and value of an entry. 0 is the newest.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let start = self.place(*entry);
        Some(self.text.get(start..start + entry.length())?.split_at(entry.name.into()))
    }

    /// Adds an entry, and removes the oldest ones to make room. An entry larger than the table empties it (section
    /// 4.4).
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = section::size(name, value);
        self.shrink(self.most.saturating_sub(size));
        // Lengths of a text that fits also fit the type.
        if let (Ok(name_length), Ok(value_length)) = (name.len().try_into(), value.len().try_into())
            && size <= self.most
        {
            let start = self.before.wrapping_add(self.text.len() as u32);
            self.entries.push_back(Entry { start, name: name_length, value: value_length });
            self.text.extend_from_slice(name);
            self.text.extend_from_slice(value);
            self.size += size;
        }
    }

    /// Changes the maximum. None if it exceeds the absolute one (section 6.3).
    pub fn resize(&mut self, most: usize) -> Option<()> {
        self.most = Some(most).filter(|most| *most <= MOST)?;
        self.shrink(most);
        Some(())
    }

    /// Removes the oldest entries until the table is no larger than this.
    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.length() + section::size(b"", b"");
        }
        let unused = self.entries.front().map_or(self.text.len(), |oldest| self.place(*oldest));
        if unused >= MOST || unused == self.text.len() {
            self.text.drain(..unused);
            self.before = self.before.wrapping_add(unused as u32);
        }
    }

    /// Where an entry is in the text.
    fn place(&self, entry: Entry) -> usize {
        entry.start.wrapping_sub(self.before) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All entries, newest first.
    fn entries(table: &DynamicTable) -> Vec<(String, String)> {
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        (0..).map_while(|index| table.get(index)).map(|(name, value)| (text(name), text(value))).collect()
    }

    fn expect(table: &DynamicTable, expected: &[(&str, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(entries(table), expected);
        assert_eq!(
            table.size,
            expected.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
        );
    }

    #[test]
    fn the_newest_comes_first_and_the_oldest_goes() {
        let mut table = DynamicTable::default();
        expect(&table, &[]);
        // Room for two entries of 36 bytes.
        table.resize(2 * 36).expect("it is less than may be");
        table.insert(b"a", b"123");
        table.insert(b"b", b"");
        expect(&table, &[("b", ""), ("a", "123")]);
        table.insert(b"", b"456");
        expect(&table, &[("", "456"), ("b", "")]);
        table.resize(35).expect("it is less than may be");
        expect(&table, &[("", "456")]);
        table.resize(MOST).expect("it is what may be");
        expect(&table, &[("", "456")]);
        table.resize(0).expect("it is less than may be");
        expect(&table, &[]);
        table.insert(b"a", b"");
        expect(&table, &[]);
        assert_eq!((table.resize(MOST + 1), table.most), (None, 0));
    }

    #[test]
    fn what_is_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::default();
        table.insert(b"a", b"b");
        let value = "c".repeat(MOST - 33);
        table.insert(b"a", value.as_bytes());
        expect(&table, &[("a", &value)]);
        table.insert(b"ab", value.as_bytes());
        expect(&table, &[]);
        table.insert(b"a", &[0; 70_000]);
        expect(&table, &[]);
    }

    #[test]
    fn its_memory_has_a_bound_however_long_it_is_used() {
        // The counter of text is about to overflow.
        let mut table = DynamicTable { before: u32::MAX - 10_000, ..DynamicTable::default() };
        let mut kept = VecDeque::new();
        for n in 0..20_000_usize {
            let (name, value) = (format!("n{n}"), "v".repeat(n * 7 % 300));
            table.insert(name.as_bytes(), value.as_bytes());
            kept.push_front((name, value));
            let mut left = MOST;
            let fits = |(name, value): &&(String, String)| {
                left = left.checked_sub(name.len() + value.len() + 32)?;
                Some(())
            };
            let count = kept
                .iter()
                .map_while({
                    let mut fits = fits;
                    move |entry| fits(&entry)
                })
                .count();
            kept.truncate(count);
            assert!(table.text.len() < 2 * MOST && table.entries.len() <= MOST / 32);
            if n % 100 == 0 {
                assert_eq!(entries(&table), kept.iter().cloned().collect::<Vec<_>>());
            }
        }
    }
}
