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
