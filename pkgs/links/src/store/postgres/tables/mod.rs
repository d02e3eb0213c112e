//! What is asked and written of each table.

pub mod clicks;
pub mod domains;
pub mod limits;
pub mod links;
pub mod list;
pub mod tokens;
