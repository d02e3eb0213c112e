//! The schema, step by step.

use postgres::{Migration, Migrations};

/// All of it.
pub const MIGRATIONS: Migrations = Migrations {
    program: "linerate-links",
    steps: &[Migration { version: 1, min_reader: 1, name: "links", sql: include_str!("schema.sql") }],
};
