//! Values of statements, with their types.

/// Values of a statement with their types.
macro_rules! values {
    ($($value:expr => $of:ident),* $(,)?) => {
        &[$((&$value as &(dyn ::postgres::types::ToSql + Sync), ::postgres::types::Type::$of)),*]
    };
}

pub(super) use values;

/// A number for PostgreSQL, at most its largest one.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from PostgreSQL.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
