//! The parts of OpenID Connect that the services use.
//!
//! ```text
//!  browser ─▶ console ─ sign_in ─┐                 ┌ fetch ─▶ the issuer: discovery, keys, code for token
//!                                ├─ issuer ─ keys ─┤
//!  program ─▶ links, api ─ jwt ──┘                 └ token: signature, issuer, audience, time
//! ```
//!
//! - [`sign_in`]: people sign in with the authorization code flow and PKCE.
//! - [`jwt`]: programs, and the console on behalf of people, send an issuer's token as a bearer token.
//! - [`issuer`]: an issuer's metadata and keys, which are fetched when they are needed, and again when they may have
//!   changed.
//! - [`token`]: the check of tokens. [`claims`]: the contents of tokens.
//! - [`url`]: the allowed URLs of issuers. `fetch`: the HTTP client for an issuer. `keys`: the accepted keys.
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
