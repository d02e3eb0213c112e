//! What is read and written, by table.

pub(in crate::store) mod clicks;
pub(in crate::store) mod domains;
pub(in crate::store) mod folded;
pub(in crate::store) mod in_domains;
pub(in crate::store) mod links;
pub(in crate::store) mod list;
pub(in crate::store) mod retention;
pub(in crate::store) mod tokens;
