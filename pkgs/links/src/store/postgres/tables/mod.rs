//! The statements of each table.

pub mod clicks;
pub mod countries;
pub mod domains;
pub mod hours;
pub mod limits;
pub mod links;
pub mod list;
pub mod scope;
pub mod tokens;

use postgres::{Session, Transaction};

use crate::store::Error;
use crate::store::postgres::MANY;
use crate::store::postgres::values::{integer, values};
use crate::store::rules::clicks::MAX_LINKS_FOLDED;

/// Removes the timeout, since nobody waits for this transaction. A slow disk then delays it instead of making it fail
/// repeatedly.
async fn patient(transaction: &Transaction<'_>) -> Result<(), Error> {
    Ok(transaction.batch(&format!("SET LOCAL statement_timeout = {}", MANY.as_millis())).await?)
}

/// The next links from `from` on that a table of clicks has: as many as one job may look at. Goes from one to the next
/// by the index. A query for all links that have old rows would read every row.
async fn links_from(session: &Session, table: &str, from: i64) -> Result<Vec<i64>, Error> {
    let sql = format!(
        "WITH RECURSIVE steps (link) AS (SELECT min(link) FROM {table} WHERE link >= $1 UNION ALL \
         SELECT (SELECT min(link) FROM {table} WHERE {table}.link > steps.link) FROM steps WHERE link IS NOT NULL) \
         SELECT link FROM steps WHERE link IS NOT NULL LIMIT $2"
    );
    let most = integer(MAX_LINKS_FOLDED as u64);
    let rows = session.query(&sql, values![from => INT8, most => INT8]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Where a job continues after [`links_from`]; `None` if these were the last ones.
fn behind(links: &[i64]) -> Option<i64> {
    links.last().filter(|_| links.len() == MAX_LINKS_FOLDED)?.checked_add(1)
}
