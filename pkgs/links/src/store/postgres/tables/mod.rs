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

use postgres::Transaction;

use crate::store::Error;
use crate::store::postgres::MANY;

/// Removes the timeout, since nobody waits for this transaction. A slow disk then delays it instead of making it fail
/// repeatedly.
async fn patient(transaction: &Transaction<'_>) -> Result<(), Error> {
    Ok(transaction.batch(&format!("SET LOCAL statement_timeout = {}", MANY.as_millis())).await?)
}
