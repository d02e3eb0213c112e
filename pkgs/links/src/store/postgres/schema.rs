//! The schema and its migrations.

use postgres::{Migration, Migrations};

/// All migrations.
pub const MIGRATIONS: Migrations = Migrations {
    program: "linerate-links",
    steps: &[
        Migration { version: 1, min_reader: 1, name: "links", sql: include_str!("schema.sql") },
        // Older programs name the columns that they use, so these two do not affect them.
        Migration {
            version: 2,
            min_reader: 1,
            name: "ends and uses of keys",
            sql: "ALTER TABLE tokens ADD COLUMN expires_at BIGINT, ADD COLUMN last_used_at BIGINT",
        },
        // Older programs count no hours, and clicks that they add up are in all other sums.
        Migration { version: 3, min_reader: 1, name: "clicks by hour", sql: include_str!("hours.sql") },
        Migration {
            version: 4,
            min_reader: 1,
            name: "clicks by country",
            sql: include_str!("countries.sql"),
        },
        // Those that an export without hashes disables, and counts before it begins.
        Migration {
            version: 5,
            min_reader: 1,
            name: "active links with a password",
            sql: "CREATE INDEX links_locked ON links (domain) WHERE password_hash IS NOT NULL AND status = 0",
        },
    ],
};

#[cfg(test)]
mod tests {
    /// The feed reads these tables as its crate knows them.
    #[test]
    fn the_tables_of_changes_are_those_that_the_feed_reads() {
        assert!(include_str!("schema.sql").contains(::postgres::CHANGES_SCHEMA));
    }
}
