//! What is read and written, by table.

pub(super) mod clicks;
pub(super) mod domains;
pub(super) mod draft;
pub(super) mod folded;
pub(super) mod in_domains;
pub(super) mod links;
pub(super) mod list;
pub(super) mod retention;
pub(super) mod tokens;
