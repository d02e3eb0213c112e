//! The error of an invalid field.

use std::fmt::Display;

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidField {
    /// Its name, as in [`NewLink`](crate::link::NewLink) or [`NewDomain`](crate::domains::NewDomain).
    pub field: &'static str,
    /// The reason, for people.
    pub reason: String,
}

impl InvalidField {
    /// An error of this field, for this reason.
    pub(crate) fn new(field: &'static str, why: impl Display) -> Self {
        Self { field, reason: why.to_string() }
    }
}
