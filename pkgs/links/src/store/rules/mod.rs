//! The rules of every database: limits, and the meaning of numbers and texts in rows.

pub mod clicks;
pub mod domains;
pub mod links;
pub mod list;
pub mod tokens;
pub mod walk;
