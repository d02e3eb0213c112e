//! Values of statements, with their types.

/// Values of a statement with their types.
macro_rules! values {
    ($($value:expr => $of:ident),* $(,)?) => {
        &[$((&$value as &(dyn ::postgres::types::ToSql + Sync), ::postgres::types::Type::$of)),*]
    };
}

pub(super) use values;

/// As PostgreSQL counts, which has no greater number.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// As counted here.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
