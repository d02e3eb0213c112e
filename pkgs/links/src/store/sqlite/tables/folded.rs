//! The range of days of a link that were merged.

use rusqlite::{Connection, params};

use crate::store::rules::clicks::OLDER;
use crate::store::{Error, Older};
use crate::when::format_day;

/// The merged days of the links that a condition with one parameter selects. `None` unless all of them are between
/// `first` and `last`.
pub(in crate::store::sqlite) fn within(
    connection: &Connection,
    (these, link): (&str, i64),
    first: i32,
    last: i32,
) -> Result<Option<Older>, Error> {
    let folded: (Option<i32>, Option<i32>) = connection
        .prepare_cached(&format!("SELECT min(first), max(last) FROM folded_days WHERE {these}"))?
        .query_row([link], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (first, last) = match folded {
        (Some(oldest), Some(newest)) if oldest >= first && newest <= last => (oldest, newest),
        _ => return Ok(None),
    };
    let clicks = connection
        .prepare_cached(&format!("SELECT ifnull(sum(count), 0) FROM clicks WHERE {these} AND day = ?2"))?
        .query_row(params![link, OLDER], |row| row.get(0))?;
    Ok(Some(Older { from: format_day(first), to: format_day(last), clicks }))
}

/// Deletes the record of a link's merged days.
pub(in crate::store::sqlite) fn delete(connection: &Connection, link: i64) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM folded_days WHERE link = ?1")?.execute([link])?;
    Ok(())
}
