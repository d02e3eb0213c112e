//! Who asks, by what they are known, and whose form it is.

pub mod csrf;
pub mod session;
pub mod sign_in_limits;
pub mod single_sign_on;
