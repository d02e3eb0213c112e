//! Who sends a request, how they are recognised, and whether a form is theirs.

pub mod csrf;
pub mod session;
pub mod sign_in_limits;
pub mod single_sign_on;
