//! What operations answer with.

pub(super) mod budget;
pub(super) mod respond;
