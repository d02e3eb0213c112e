//! What breaks the rules for a field.

use std::fmt::Display;

/// A field that breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidField {
    /// As in [`NewLink`](crate::link::NewLink) or [`NewDomain`](crate::domains::NewDomain).
    pub field: &'static str,
    /// For people.
    pub reason: String,
}

impl InvalidField {
    /// This field, for this reason.
    pub(crate) fn new(field: &'static str, why: impl Display) -> Self {
        Self { field, reason: why.to_string() }
    }
}
