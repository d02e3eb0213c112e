//! Checks which keys let people sign in: those that a service accepts.

use std::time::Instant;

use http::StatusCode;

use crate::app::App;
use crate::links::Links;
use crate::upstream;
use crate::users::Users;
use crate::visitor::Visitor;

/// The longest key that is tried, in bytes. Real ones are far shorter.
pub(crate) const KEY_BYTES: usize = 256;

/// Which service a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOf {
    /// linerate-links. Its keys let people sign in.
    Links,
    /// linerate-api. A signed-in user adds such a key to work with users.
    Api,
}

impl KeyOf {
    /// The service's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Api => "api",
        }
    }
}

/// Checks a key with its service.
///
/// # Errors
/// A status and a sentence for the user who tried the key.
pub(crate) async fn check(
    app: &App,
    visitor: &Visitor,
    of: KeyOf,
    key: &str,
) -> Result<(), (StatusCode, String)> {
    let refused = |status, why: &str| Err((status, why.to_owned()));
    if key.is_empty() {
        return refused(StatusCode::UNPROCESSABLE_ENTITY, "a key is needed");
    }
    if let Err(exceeded) = app.sign_in_limits.take(visitor.address, Instant::now()) {
        let wait = exceeded.retry_seconds().max(1);
        let why = format!("too many keys were tried; try again in {wait} s");
        return Err((StatusCode::TOO_MANY_REQUESTS, why));
    }
    let plausible = key.len() <= KEY_BYTES && key.bytes().all(|byte| byte.is_ascii_graphic());
    let known = if plausible { ask(app, of, key).await } else { Ok(false) };
    match known {
        Ok(true) => {
            app.sign_in_limits.give_back(visitor.address);
            Ok(())
        }
        Ok(false) => {
            tracing::warn!(client = ?visitor.address, "a key was tried that is unknown or revoked");
            let why = format!("{} does not know this key, or it is revoked", of.name());
            Err((StatusCode::UNAUTHORIZED, why))
        }
        Err(error) => {
            app.sign_in_limits.give_back(visitor.address);
            Err((StatusCode::SERVICE_UNAVAILABLE, format!("nobody can sign in now: {error}")))
        }
    }
}

/// Asks a service whether it accepts a key or token.
pub(crate) async fn ask(app: &App, of: KeyOf, key: &str) -> Result<bool, upstream::Error> {
    match (of, &app.links, &app.users) {
        (KeyOf::Links, Some(upstream), _) => Links { upstream, token: key }.knows_key().await,
        // A linerate-api that requires no keys would accept any key.
        (KeyOf::Api, _, Some(upstream)) if (Users { upstream, token: None }).admitted().await? => Ok(false),
        (KeyOf::Api, _, Some(upstream)) => Users { upstream, token: Some(key) }.admitted().await,
        _ => Ok(false),
    }
}
