//! Password forms, over any protocol.

use std::net::IpAddr;
use std::time::Instant;

use service::password;

use super::Front;
use super::host::Host;
use super::render::page::Refusal;
use super::routes::Target;
use super::visit::{Outcome, Unread, Visitor};
use super::worker_context::WorkerContext;
use crate::cache::Entry;

/// The longest form, in bytes: a password of 256 bytes, each percent-encoded, and its name.
pub const MAX_FORM_BYTES: usize = 1024;

/// A link with a password.
pub struct LockedLink {
    link: i64,
    hash: String,
}

impl WorkerContext {
    /// The link with this code at this host, if it requires a password. `known` is its entry, if it was already read.
    pub fn locked(
        &self,
        target: &Target<'_>,
        host: Host<'_>,
        known: Option<&Entry>,
    ) -> Result<Result<LockedLink, Unread>, Refusal> {
        let unknown = Visitor { host, head: true, ..Visitor::default() };
        self.look(target, &unknown, known, |outcome| match outcome {
            Outcome::Unread(unread) => Ok(Err(unread)),
            Outcome::Ask(entry) => {
                let hash = entry.password_hash().unwrap_or_default().to_owned();
                Ok(Ok(LockedLink { link: entry.link(), hash }))
            }
            Outcome::Gone => Err(Refusal::Gone),
            Outcome::Unavailable => Err(Refusal::Unavailable),
            Outcome::Missing | Outcome::Elsewhere(_) | Outcome::Lost(_) => Err(Refusal::Missing),
            _ => Err(Refusal::Method),
        })
    }
}

/// Why a link stays locked.
pub struct Locked {
    pub refusal: Refusal,
    /// Seconds until the next attempt, if there were too many.
    pub retry_after: Option<u64>,
}

impl From<Refusal> for Locked {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None }
    }
}

impl LockedLink {
    /// Tries the password in a form from `address`. Returns the hash that it matches, which is the one from before the
    /// form arrived.
    ///
    /// # Errors
    /// When the form has no password or a wrong one, or there were too many attempts.
    pub async fn unlock(self, front: &Front, form: &[u8], address: IpAddr) -> Result<String, Locked> {
        let Self { link, hash } = self;
        let Some(password) = password_of(form) else { return Err(Refusal::Malformed.into()) };
        let turn = front.attempts.begin(link, address, Instant::now());
        let turn =
            turn.map_err(|seconds| Locked { refusal: Refusal::Attempts, retry_after: Some(seconds) })?;
        let verified = tokio::task::spawn_blocking(move || {
            // The permit is held until the hash is done, even if the client has left.
            let _turn = turn;
            password::verify(&password, &hash).then_some(hash)
        });
        verified.await.ok().flatten().ok_or_else(|| Refusal::WrongPassword.into())
    }
}

/// The password in a form; the last one if there are several.
pub fn password_of(form: &[u8]) -> Option<String> {
    let fields = url::form_urlencoded::parse(form);
    fields.filter(|(name, _)| name == "password").last().map(|(_, password)| password.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_password_of_a_form_counts() {
        for (form, password) in [
            ("password=a+b%26", Some("a b&")),
            ("x=1&password=a&password=b", Some("b")),
            ("password", Some("")),
            ("passwort=a", None),
            ("", None),
        ] {
            assert_eq!(password_of(form.as_bytes()).as_deref(), password, "{form}");
        }
    }
}
