//! The schema and its migrations.

use postgres::{Migration, Migrations};

/// All migrations.
pub const MIGRATIONS: Migrations = Migrations {
    program: "linerate-api",
    steps: &[
        Migration {
            version: 1,
            min_reader: 1,
            name: "users",
            sql: include_str!("migrations/0001_users.sql"),
        },
        Migration {
            version: 2,
            min_reader: 2,
            name: "claims by blocks",
            sql: include_str!("migrations/0002_claims_by_blocks.sql"),
        },
        // Older programs write as before. Triggers record their changes.
        Migration {
            version: 3,
            min_reader: 2,
            name: "changes",
            sql: include_str!("migrations/0003_changes.sql"),
        },
        // Older programs record no uses.
        Migration {
            version: 4,
            min_reader: 2,
            name: "uses of keys",
            sql: include_str!("migrations/0004_key_uses.sql"),
        },
    ],
};

#[cfg(test)]
mod tests {
    /// The feed reads these tables as its crate knows them.
    #[test]
    fn the_tables_of_changes_are_those_that_the_feed_reads() {
        assert!(include_str!("migrations/0003_changes.sql").contains(::postgres::CHANGES_SCHEMA));
    }
}
