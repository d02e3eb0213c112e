//! Passwords of basic authentication (RFC 7617): tried by threads of their own, a few times a minute by address, and
//! known from then on, so that a hot file stays hot.
//!
//! What is known is a keyed digest of hash and password: a hash that changes makes both unknown, and neither is kept.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use service::password;
use service::socket::network;

use crate::site::secrets::Realm;
use crate::threads::health::ThreadHealth;
use crate::threads::pool::ThreadPool;

/// Wrong passwords a minute from one address.
const PER_ADDRESS: u32 = 5;

/// Wrong passwords a minute for one user, from everywhere.
const PER_USER: u32 = 100;

/// How long tries count.
const MINUTE: Duration = Duration::from_secs(60);

/// Hashes at once: each takes 19 MiB and a core for some 20 ms.
const THREADS: usize = 2;

/// Passwords that wait for a thread, some half a second.
const WAITING: usize = 64;

/// Passwords that are known; past it the oldest are forgotten.
const KNOWN: usize = 4096;

/// How long one is known.
const KNOWN_FOR: Duration = Duration::from_secs(600);

/// Addresses and users whose tries are counted. A hash takes 20 ms, so that there are not half as many in a minute.
const COUNTED: usize = 65_536;

/// The longest credentials, in base64.
const MAX_BYTES: usize = 1024;

type Digest = [u8; 32];

/// What all workers know of passwords.
pub struct Authenticator {
    key: hmac::Key,
    known: ArcSwap<HashMap<Digest, Instant>>,
    tries: Mutex<HashMap<Counted, (Instant, u32)>>,
    pool: ThreadPool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Counted {
    Address(IpAddr),
    User(Digest),
}

/// What becomes of credentials.
#[derive(Debug)]
pub enum CredentialCheck {
    /// They are known to be right.
    Accepted,
    /// There are none, or none of a user.
    Rejected,
    /// They have to be tried.
    Verify(PasswordAttempt),
}

/// Credentials that are to be tried.
pub struct PasswordAttempt {
    /// Where.
    pub realm: Arc<Realm>,
    hash: Arc<str>,
    /// Whether the hash is that of the user, or anybody's so that nobody learns who is one.
    is_user: bool,
    password: String,
    digest: Digest,
    counted: Vec<Counted>,
}

/// What came of trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    /// The password is right.
    Accepted,
    /// It is not.
    Rejected,
    /// There were too many wrong ones.
    TooMany,
    /// There are too many to try just now.
    Busy,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl fmt::Debug for PasswordAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordAttempt").field("realm", &self.realm.name).finish_non_exhaustive()
    }
}

impl Default for Authenticator {
    fn default() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &aws_lc_rs::rand::SystemRandom::new());
        Self {
            key: key.expect("the system has random bytes"),
            known: ArcSwap::default(),
            tries: Mutex::default(),
            pool: ThreadPool::new("files-auth", THREADS, WAITING),
        }
    }
}

impl Authenticator {
    /// Looks at the credentials in `Authorization` of a request from `address`.
    pub fn check(
        &self,
        realm: &Arc<Realm>,
        authorization: Option<&[u8]>,
        address: Option<IpAddr>,
    ) -> CredentialCheck {
        let Some((user, password)) = authorization.and_then(credentials) else {
            return CredentialCheck::Rejected;
        };
        let hash = realm.users.get(&*user);
        let is_user = hash.is_some();
        let Some(hash) = hash.or_else(|| realm.users.values().next()) else {
            return CredentialCheck::Rejected;
        };
        let digest = self.digest(&[hash.as_bytes(), password.as_bytes()]);
        if is_user && self.known.load().get(&digest).is_some_and(|since| since.elapsed() < KNOWN_FOR) {
            return CredentialCheck::Accepted;
        }
        let address = address.map(|address| Counted::Address(network(address)));
        let user = Counted::User(self.digest(&[realm.name.as_bytes(), user.as_bytes()]));
        CredentialCheck::Verify(PasswordAttempt {
            realm: Arc::clone(realm),
            hash: Arc::clone(hash),
            is_user,
            password,
            digest,
            counted: address.into_iter().chain([user]).collect(),
        })
    }

    /// Tries a password; `done` is called on the thread that did, or at once.
    pub fn verify_in_background(
        self: &Arc<Self>,
        this: PasswordAttempt,
        done: impl FnOnce(PasswordVerdict) + Send + 'static,
    ) {
        if !self.count(&this.counted) {
            return done(PasswordVerdict::TooMany);
        }
        let authenticator = Arc::clone(self);
        let counted = this.counted.clone();
        // Where the queue is full, it is not lost with the job.
        let done = Arc::new(Mutex::new(Some(done)));
        let told = Arc::clone(&done);
        let taken = self.pool.run(move || {
            let verdict = service::panics::catch(|| authenticator.verify(&this)).unwrap_or_else(|panic| {
                panic.log("job", "trying a password");
                PasswordVerdict::Busy
            });
            tell(&told, verdict);
        });
        if !taken {
            self.give_back(&counted);
            tell(&done, PasswordVerdict::Busy);
        }
    }

    /// Since when its threads have been at their jobs.
    pub fn health(&self) -> &ThreadHealth {
        self.pool.health()
    }

    fn verify(&self, this: &PasswordAttempt) -> PasswordVerdict {
        let right = password::verify(&this.password, &this.hash) && this.is_user;
        if !right {
            return PasswordVerdict::Rejected;
        }
        self.give_back(&this.counted);
        let now = Instant::now();
        self.known.rcu(|known| {
            let mut known: HashMap<Digest, Instant> = known
                .iter()
                .filter(|(_, since)| now.duration_since(**since) < KNOWN_FOR)
                .map(|(digest, since)| (*digest, *since))
                .collect();
            if known.len() >= KNOWN
                && let Some(oldest) = known.iter().min_by_key(|(_, since)| **since).map(|(digest, _)| *digest)
            {
                known.remove(&oldest);
            }
            known.insert(this.digest, now);
            known
        });
        PasswordVerdict::Accepted
    }

    /// Counts a try. Returns whether there may be one more; given back where the password is right.
    fn count(&self, counted: &[Counted]) -> bool {
        let now = Instant::now();
        let mut tries = self.tries();
        if tries.len() >= COUNTED {
            tries.retain(|_, (since, _)| now.duration_since(*since) < MINUTE);
        }
        let has_room = counted.iter().all(|key| match tries.get(key) {
            Some((since, count)) if now.duration_since(*since) < MINUTE => *count < key.most(),
            Some(_) => true,
            None => tries.len() < COUNTED,
        });
        if has_room {
            for key in counted {
                let (since, count) = tries.entry(key.clone()).or_insert((now, 0));
                if now.duration_since(*since) >= MINUTE {
                    (*since, *count) = (now, 0);
                }
                *count += 1;
            }
        }
        has_room
    }

    fn give_back(&self, counted: &[Counted]) {
        let mut tries = self.tries();
        for key in counted {
            if let Some((_, count)) = tries.get_mut(key) {
                *count = count.saturating_sub(1);
            }
        }
    }

    fn tries(&self) -> MutexGuard<'_, HashMap<Counted, (Instant, u32)>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of several texts, apart from each other.
    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

impl Counted {
    fn most(&self) -> u32 {
        match self {
            Self::Address(_) => PER_ADDRESS,
            Self::User(_) => PER_USER,
        }
    }
}

fn tell(done: &Mutex<Option<impl FnOnce(PasswordVerdict)>>, verdict: PasswordVerdict) {
    if let Some(done) = done.lock().unwrap_or_else(PoisonError::into_inner).take() {
        done(verdict);
    }
}

/// User and password (RFC 7617, section 2).
fn credentials(authorization: &[u8]) -> Option<(String, String)> {
    let (scheme, rest) = authorization.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || rest.len() > MAX_BYTES {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(rest.trim_ascii()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn realm(users: &[(&str, &str)]) -> Arc<Realm> {
        let hash = |password: &str| Arc::from(password::hash(password).expect("a hash"));
        let users = users.iter().map(|(user, password)| ((*user).to_owned(), hash(password)));
        Arc::new(Realm { name: "r".to_owned(), users: users.collect() })
    }

    fn basic(user: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    }

    /// What comes of credentials in the end.
    fn verdict(
        authenticator: &Arc<Authenticator>,
        realm: &Arc<Realm>,
        authorization: &[u8],
        address: IpAddr,
    ) -> PasswordVerdict {
        match authenticator.check(realm, Some(authorization), Some(address)) {
            CredentialCheck::Accepted => PasswordVerdict::Accepted,
            CredentialCheck::Rejected => PasswordVerdict::Rejected,
            CredentialCheck::Verify(this) => {
                let (give, verdict) = channel();
                authenticator
                    .verify_in_background(this, move |verdict| give.send(verdict).expect("it is waited for"));
                verdict.recv().expect("a verdict")
            }
        }
    }

    #[test]
    fn a_right_password_is_known_and_wrong_ones_are_few() {
        let authenticator = Arc::new(Authenticator::default());
        let realm = realm(&[("a", "one"), ("b", "two:")]);
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "one"), here), PasswordVerdict::Accepted);
        assert!(matches!(
            authenticator.check(&realm, Some(&basic("a", "one")), None),
            CredentialCheck::Accepted
        ));
        assert_eq!(verdict(&authenticator, &realm, &basic("b", "two:"), here), PasswordVerdict::Accepted);
        for (user, password) in [("a", "two:"), ("b", "one"), ("c", "one"), ("a", ""), ("", "one")] {
            assert_eq!(
                verdict(&authenticator, &realm, &basic(user, password), here),
                PasswordVerdict::Rejected,
                "{user}"
            );
        }
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "x"), here), PasswordVerdict::TooMany);
        // Who is known goes on, and who comes from elsewhere.
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "one"), here), PasswordVerdict::Accepted);
        assert_eq!(verdict(&authenticator, &realm, &basic("a", "x"), there), PasswordVerdict::Rejected);
        // A hash that changes makes the password unknown.
        let changed = self::realm(&[("a", "other")]);
        assert_eq!(verdict(&authenticator, &changed, &basic("a", "one"), there), PasswordVerdict::Rejected);
    }

    #[test]
    fn what_are_no_credentials_is_not_tried() {
        let authenticator = Authenticator::default();
        let realm = realm(&[("a", "one")]);
        let long = format!("Basic {}", BASE64_STANDARD.encode("a:".to_owned() + &"x".repeat(MAX_BYTES)));
        for text in
            ["", "Basic", "Basic ", "Basic YQ==", "Basic !!!!", "Bearer YTpvbmU=", "Basic gIA6gA==", &long]
        {
            assert!(
                matches!(authenticator.check(&realm, Some(text.as_bytes()), None), CredentialCheck::Rejected),
                "{text}"
            );
        }
        assert!(matches!(authenticator.check(&realm, None, None), CredentialCheck::Rejected));
        let nobody = self::realm(&[]);
        assert!(matches!(
            authenticator.check(&nobody, Some(&basic("a", "one")), None),
            CredentialCheck::Rejected
        ));
    }
}
