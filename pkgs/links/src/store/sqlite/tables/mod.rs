//! Reads and writes, by table.

pub(in crate::store::sqlite) mod clicks;
pub(in crate::store::sqlite) mod countries;
pub(in crate::store::sqlite) mod domains;
pub(in crate::store::sqlite) mod folded;
pub(in crate::store::sqlite) mod hours;
pub(in crate::store::sqlite) mod in_domains;
pub(in crate::store::sqlite) mod links;
pub(in crate::store::sqlite) mod list;
mod many;
pub(in crate::store::sqlite) mod retention;
pub(in crate::store::sqlite) mod scope;
pub(in crate::store::sqlite) mod tokens;
