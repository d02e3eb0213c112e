//! The tables of a database, which are the same in SQLite and PostgreSQL.
//!
//! They do not include derived data. In SQLite that is the index of tags. In PostgreSQL it is the clicks granted to
//! nodes (which start again from the counted clicks), the feed of changes, and clicks that are not yet added up.

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer of 64 bits.
    Number,
    /// An integer of 32 bits.
    Day,
    /// An integer of 16 bits.
    Small,
    /// 0 or 1.
    Flag,
    /// A text.
    Text,
    /// Text of words, separated by single spaces.
    Words,
    /// Bytes.
    Bytes,
    /// An integer of 64 bits that requests change which only read. Digests leave it out; such columns come last.
    Noted,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// For [`Kind::Number`], [`Kind::Day`], [`Kind::Small`], [`Kind::Flag`] and [`Kind::Noted`].
    Number(i64),
    /// For [`Kind::Text`] and [`Kind::Words`].
    Text(String),
    /// For [`Kind::Bytes`].
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of the table's columns.
pub type Row = Vec<Value>;

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, key columns first.
    pub columns: &'static [(&'static str, Kind)],
    /// How many columns are its key, which orders its rows.
    pub keys: usize,
    /// Whether its key is an assigned number that is never reused.
    pub is_numbered: bool,
}

impl Table {
    /// The names of its columns.
    pub fn names(&self) -> Vec<&'static str> {
        self.columns.iter().map(|(name, _)| *name).collect()
    }

    /// How many of its columns digests take in.
    pub fn digested(&self) -> usize {
        self.columns.iter().take_while(|(_, kind)| *kind != Kind::Noted).count()
    }

    /// The columns that order its rows.
    pub fn order(&self) -> String {
        self.names()[..self.keys].join(", ")
    }
}

/// All tables; a table comes after those that it refers to.
pub const TABLES: [Table; 9] = {
    use Kind::{Bytes, Day, Flag, Noted, Number, Small, Text, Words};
    [
        Table {
            name: "domains",
            columns: &[
                ("id", Number),
                ("host", Text),
                ("root_target", Text),
                ("default_target", Text),
                ("not_found_html", Text),
                ("created_at", Number),
            ],
            keys: 1,
            is_numbered: true,
        },
        Table {
            name: "links",
            columns: &[
                ("id", Number),
                ("domain", Number),
                ("code", Text),
                ("target", Text),
                ("title", Text),
                ("tags", Words),
                ("status", Small),
                ("redirect", Small),
                ("forward_query", Flag),
                ("password_hash", Text),
                ("not_before", Number),
                ("expires_at", Number),
                ("max_clicks", Number),
                ("created_at", Number),
                ("updated_at", Number),
            ],
            keys: 1,
            is_numbered: true,
        },
        Table {
            name: "totals",
            columns: &[("link", Number), ("clicks", Number)],
            keys: 1,
            is_numbered: false,
        },
        Table {
            name: "clicks",
            columns: &[
                ("link", Number),
                ("day", Day),
                ("referrer", Text),
                ("agent", Small),
                ("count", Number),
                ("seen", Number),
            ],
            keys: 4,
            is_numbered: false,
        },
        Table {
            name: "folded_days",
            columns: &[("link", Number), ("first", Day), ("last", Day)],
            keys: 1,
            is_numbered: false,
        },
        Table {
            name: "click_hours",
            columns: &[("link", Number), ("hour", Day), ("count", Number), ("bots", Number)],
            keys: 2,
            is_numbered: false,
        },
        Table {
            name: "click_countries",
            columns: &[("link", Number), ("day", Day), ("country", Text), ("count", Number)],
            keys: 3,
            is_numbered: false,
        },
        Table {
            name: "idempotency",
            columns: &[("key", Text), ("request", Bytes), ("link", Number), ("created_at", Number)],
            keys: 1,
            is_numbered: false,
        },
        Table {
            name: "tokens",
            columns: &[
                ("id", Number),
                ("name", Text),
                ("scope", Number),
                ("selector", Text),
                ("hash", Bytes),
                ("domains", Text),
                ("created_at", Number),
                ("expires_at", Number),
                ("last_used_at", Noted),
            ],
            keys: 1,
            is_numbered: true,
        },
    ]
};
