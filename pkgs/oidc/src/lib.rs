//! OpenID Connect, as far as the services speak it.
//!
//! ```text
//!  browser ─▶ console ─ sign_in ─┐                 ┌ fetch ─▶ the issuer: discovery, keys, code for token
//!                                ├─ issuer ─ keys ─┤
//!  program ─▶ links, api ─ jwt ──┘                 └ token: signature, issuer, audience, time
//! ```
//!
//! - [`sign_in`]: people, by the authorization code flow with PKCE.
//! - [`jwt`]: programs, and the console in the name of people, by a token of the issuer as a bearer token.
//! - [`issuer`]: what an issuer says of itself, and its keys, fetched when they are needed and anew when they change.
//! - [`token`]: what makes a token good. [`claims`]: what it says.
//! - [`url`]: where an issuer may be. `fetch`: how it is asked. `keys`: those of its keys that are taken.
#![forbid(unsafe_code)]

pub mod claims;
mod fetch;
pub mod issuer;
pub mod jwt;
mod keys;
pub mod sign_in;
pub mod token;
pub mod url;

#[cfg(test)]
mod tests;

pub use issuer::{Issuer, Unavailable};
pub use url::IssuerUrl;
