//! Identifies who sends a request, and checks that a form is theirs.

pub mod csrf;
pub mod session;
pub mod sign_in_limits;
pub mod single_sign_on;
