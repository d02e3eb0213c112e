//! What is asked and written of each table.

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

/// Nobody waits for what a transaction does: a slow disk makes it late, and not fail again and again.
async fn patient(transaction: &Transaction<'_>) -> Result<(), Error> {
    Ok(transaction.batch(&format!("SET LOCAL statement_timeout = {}", MANY.as_millis())).await?)
}
