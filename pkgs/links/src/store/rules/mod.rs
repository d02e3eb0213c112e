//! The rules that hold in every database: limits, and what numbers and texts in rows mean.

pub mod clicks;
pub mod domains;
pub mod links;
pub mod list;
pub mod tokens;
pub mod walk;
